#include "live/io/transfer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "live/ggml/clock.h"

namespace outrider {
namespace {

// A small copy is nearly done when a need comes, and its latency is long: a spare copy begins as a low one does.
constexpr uint64_t small_copy_bytes = 256 << 10;

}  // namespace

TransferPool::TransferPool(int n_running, CopyWork work, std::unique_ptr<ReadRing> ring)
    : work_(std::move(work)),
      max_running_(size_t(n_running)),
      most_{max_running_, size_t(std::ceil(double(max_running_) * work_.low_share)),
            work_.low_share < 1 ? size_t(1) : max_running_},
      ring_(std::move(ring)),
      queues_(work_.n_drive),
      least_us_per_byte_(std::numeric_limits<double>::infinity()) {
    try {
        for (size_t i = 0; i < (ring_ ? 1 : max_running_ * work_.n_drive); i++) {
            threads_.emplace_back([this] { ring_ ? run_ring() : run(); });
        }
    } catch (...) {
        stop();  // the threads that were started
        throw;
    }
}

TransferPool::~TransferPool() { stop(); }

void TransferPool::stop() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
        forget_queued();
    }
    work_there_.notify_all();
    for (auto & t : threads_) {
        t.join();
    }
    threads_.clear();
    const Lock lock(mutex_);
    while (n_batch_ > 0) {
        end_read(ReadRing::Time::max(), true);
    }
}

void TransferPool::submit(const Copy & copy) {
    const Lock lock(mutex_);
    Queue & queue = queues_[work_.drive(copy)];
    queue.copies[copy.urgency == Urgency::high ? 0 : copy.urgency == Urgency::low ? 1 : 2].push_back(copy);
    if (!ring_ && threads_.empty()) {
        perform(take(queue));
        queue.n_batch--;
    }
}

void TransferPool::begin() {
    {
        const Lock lock(mutex_);
        if (ring_) {
            begin_reads();
        }
        if (ring_ ? n_queued() == 0 || collecting_ : !ready()) {
            return;
        }
    }
    work_there_.notify_one();
}

bool TransferPool::cancel(Ticket ticket) {
    const Lock lock(mutex_);
    for (Queue & queue : queues_) {
        for (auto & copies : queue.copies) {
            if (std::erase_if(copies, [&](const Copy & c) { return c.ticket == ticket; }) > 0) {
                return true;
            }
        }
    }
    return false;
}

size_t TransferPool::n_queued() const {
    size_t n = 0;
    for (const Queue & queue : queues_) {
        for (const auto & copies : queue.copies) {
            n += copies.size();
        }
    }
    return n;
}

void TransferPool::forget_queued() {
    for (Queue & queue : queues_) {
        queue.copies = {};
    }
}

bool TransferPool::collect(ReadRing::Time until) {
    const Lock lock(mutex_);
    return end_read(until, true);
}

std::optional<Arrival> TransferPool::try_arrival() {
    const Lock lock(mutex_);
    end_read(ReadRing::Time::min(), true);
    return pop();
}

std::optional<Arrival> TransferPool::wait_arrival(std::chrono::milliseconds timeout) {
    Lock lock(mutex_);
    assert(!arrivals_.empty() || n_queued() > 0 || n_copying_ > 0);
    const auto until = std::chrono::steady_clock::now() + timeout;
    const auto is_there = [this]() REQUIRES(mutex_) { return !arrivals_.empty(); };
    while (!is_there() && std::chrono::steady_clock::now() < until) {
        if (!end_read(until, true)) {
            arrived_.wait_until(lock.native(), until, is_there);
        }
    }
    return pop();
}

std::optional<Arrival> TransferPool::pop() {
    if (arrivals_.empty()) {
        return std::nullopt;
    }
    Arrival a = std::move(arrivals_.front());
    arrivals_.pop_front();
    return a;
}

size_t TransferPool::n_open() const {
    const Lock lock(mutex_);
    return n_queued() + n_copying_ + arrivals_.size();
}

uint64_t TransferPool::busy_us() {
    const Lock lock(mutex_);
    end_read(ReadRing::Time::min(), true);
    return busy_us_ + (n_batch_ > 0 ? now_us() - busy_since_us_ : 0);
}

void TransferPool::drain() {
    Lock lock(mutex_);
    forget_queued();
    while (n_batch_ > 0) {
        if (!end_read(ReadRing::Time::max(), true)) {
            arrived_.wait(lock.native(),
                          [this]() REQUIRES(mutex_) { return n_batch_ == 0 || (ring_ && !collecting_); });
        }
    }
    arrivals_.clear();
}

bool TransferPool::may_begin(const Queue & queue) const {
    const size_t first = queue.first();
    if (first == n_urgency) {
        return false;
    }
    const bool is_small = first == 2 && work_.bytes(queue.copies[first].front()) <= small_copy_bytes;
    return queue.n_batch < most_[is_small ? 1 : first];
}

// Return a queue that may begin a copy, or null.
TransferPool::Queue * TransferPool::ready() {
    const auto it = std::find_if(queues_.begin(), queues_.end(), [this](const Queue & q) { return may_begin(q); });
    return it == queues_.end() ? nullptr : &*it;
}

// Return whether `next` is read together with the `bytes` that end with `last`. A needed expert can be computed only
// when all of it is there, and one read of it takes less time than several. A ring submits ranges that do not lie
// together at once, too.
bool TransferPool::follows(const Copy & last, const Copy & next, uint64_t bytes) const {
    const bool is_same = last.layer == next.layer && last.expert == next.expert && last.part == next.part;
    const bool is_needed = is_same && next.urgency == Urgency::high;
    if (next.urgency == Urgency::spare) {
        return false;
    }
    return (is_needed && ring_) || ((is_needed || bytes < work_.max_joined_bytes) && work_.joins(last, next));
}

// Begin the most urgent copy, with the queued copies that are read together with it. REQUIRES: something is queued.
TransferPool::Batch TransferPool::take(Queue & queue) {
    auto & copies = queue.copies[queue.first()];
    Batch batch{copies.front()};
    copies.pop_front();
    uint64_t bytes = work_.bytes(batch.back());
    while (!copies.empty() && follows(batch.back(), copies.front(), bytes)) {
        bytes += work_.bytes(copies.front());
        batch.push_back(copies.front());
        copies.pop_front();
    }
    queue.n_batch++;
    n_copying_ += batch.size();
    if (n_batch_++ == 0) {
        busy_since_us_ = now_us();
        busy_bytes_ = 0;
    }
    busy_bytes_ += bytes;
    return batch;
}

// Copy a batch in this thread.
void TransferPool::perform(const Batch & batch) {
    std::vector<Arrival> arrivals;
    {
        const Unlocked unlocked(mutex_);
        arrivals = copy(batch);
    }
    end(batch, std::move(arrivals), now_us());
}

// Return whether the bytes that a ring has read are right. Unlocks for a while.
bool TransferPool::is_sound(const Batch & batch) {
    if (!work_.check) {
        return true;
    }
    const Unlocked unlocked(mutex_);
    try {
        work_.check(batch);
    } catch (const std::exception &) {
        return false;
    }
    return true;
}

// Perform a batch. If it fails, perform each of its copies alone.
std::vector<Arrival> TransferPool::copy(const Batch & batch) const {
    std::vector<Arrival> arrivals;
    const auto perform = [&](std::span<const Copy> copies) {
        std::string error;
        try {
            work_.copy(copies);
        } catch (const std::exception & e) {
            error = e.what();
        }
        if (!error.empty() && copies.size() > 1) {
            return false;
        }
        for (const Copy & c : copies) {
            arrivals.push_back({c.ticket, error});
        }
        return true;
    };
    if (!perform(batch)) {
        for (const Copy & c : batch) {
            perform({&c, 1});
        }
    }
    return arrivals;
}

// Unlocks for a while.
void TransferPool::end(const Batch & batch, std::vector<Arrival> arrivals, uint64_t ended_us) {
    if (work_.deliver) {
        const Unlocked unlocked(mutex_);  // deliver() may use another pool
        work_.deliver(batch, std::move(arrivals));
        arrivals.clear();
    }
    n_copying_ -= batch.size();
    if (--n_batch_ == 0) {
        count_busy(ended_us);
    }
    for (Arrival & a : arrivals) {
        arrivals_.push_back(std::move(a));
    }
    arrived_.notify_all();
}

void TransferPool::count_busy(uint64_t ended_us) {
    const auto us = double(ended_us - busy_since_us_);
    if (awaited_) {
        least_us_per_byte_ = std::min(least_us_per_byte_, us / double(busy_bytes_));
    }
    busy_us_ += uint64_t(awaited_ ? us : std::min(us, least_us_per_byte_ * double(busy_bytes_)));
}

void TransferPool::run() {
    Lock lock(mutex_);
    while (true) {
        Queue * queue = nullptr;
        work_there_.wait(lock.native(), [&]() REQUIRES(mutex_) { return stopping_ || (queue = ready()); });
        if (stopping_) {
            return;
        }
        const Batch batch = take(*queue);
        if (ready()) {
            work_there_.notify_one();
        }
        perform(batch);
        queue->n_batch--;
    }
}

// Give the ring as much as may be in flight.
void TransferPool::begin_reads() {
    while (Queue * queue = ready()) {
        Batch batch = take(*queue);
        reads_.clear();
        work_.reads(batch, reads_);
        const uint64_t id = ++last_id_;
        if (ring_->begin(id, reads_)) {
            in_ring_.emplace(id, std::move(batch));
        } else {
            awaited_ = true;
            end(batch, copy(batch), now_us());  // the kernel lacks a resource
            queue->n_batch--;
        }
    }
}

// Unlocks for a while. `alone`: no copy is submitted meanwhile.
bool TransferPool::end_read(ReadRing::Time until, bool alone) {
    if (ring_ && !collecting_) {
        begin_reads();
    }
    if (!ring_ || n_batch_ == 0) {
        return false;
    }
    if (collecting_) {
        followed_ = followed_ || until != ReadRing::Time::min();
        return false;
    }
    collecting_ = true;
    done_.clear();
    bool waited = false;
    {
        const Unlocked unlocked(mutex_);
        waited = ring_->wait(done_, until, alone);
    }
    const uint64_t ended_us = now_us();
    followed_ = followed_ && done_.empty();  // before its awaited copy is delivered
    std::vector<Batch> batches;
    for (const auto & done : done_) {
        batches.push_back(std::move(in_ring_.extract(done.id).mapped()));
        queues_[work_.drive(batches.back().front())].n_batch--;
    }
    begin_reads();  // first: the drive is idle
    for (size_t i = 0; i < batches.size(); i++) {
        const bool is_right = done_[i].whole && is_sound(batches[i]);
        awaited_ = waited || !is_right;
        if (!is_right) {
            perform(batches[i]);
            continue;
        }
        std::vector<Arrival> arrivals;
        for (const Copy & c : batches[i]) {
            arrivals.push_back({c.ticket, {}});
        }
        end(batches[i], std::move(arrivals), ended_us);
    }
    collecting_ = false;
    if (n_batch_ > 0 && (n_queued() > 0 || followed_)) {
        work_there_.notify_one();
    }
    arrived_.notify_all();
    return true;
}

// The ring's thread. It begins queued copies when a place is free.
void TransferPool::run_ring() {
    Lock lock(mutex_);
    while (true) {
        work_there_.wait(lock.native(), [this]() REQUIRES(mutex_) {
            return stopping_ || (!collecting_ && n_batch_ > 0 && (n_queued() > 0 || followed_));
        });
        if (stopping_) {
            return;
        }
        end_read(ReadRing::Time::max(), false);
    }
}

}  // namespace outrider
