#include "live/io/transfer.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "live/ggml/clock.h"

namespace outrider {

TransferPool::TransferPool(int n_running, CopyWork work, std::unique_ptr<ReadRing> ring)
    : work_(std::move(work)),
      max_running_(size_t(n_running)),
      max_low_(size_t(std::ceil(double(max_running_) * work_.low_share))),
      ring_(std::move(ring)),
      queues_(work_.n_drive) {
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
        if (ring_ && !threads_.empty()) {
            ring_->wake();
        }
    }
    work_there_.notify_all();
    for (auto & t : threads_) {
        t.join();
    }
    threads_.clear();
}

void TransferPool::submit(const Copy & copy) {
    {
        const Lock lock(mutex_);
        Queue & queue = queues_[work_.drive(copy)];
        (copy.urgency == Urgency::high ? queue.high : queue.low).push_back(copy);
        if (ring_) {
            begin_reads();
        } else if (threads_.empty()) {
            perform(take(queue));
        }
    }
    work_there_.notify_one();
}

bool TransferPool::cancel(Ticket ticket) {
    const Lock lock(mutex_);
    for (Queue & queue : queues_) {
        for (auto * copies : {&queue.low, &queue.high}) {
            if (std::erase_if(*copies, [&](const Copy & c) { return c.ticket == ticket; }) > 0) {
                return true;
            }
        }
    }
    return false;
}

size_t TransferPool::n_queued() const {
    size_t n = 0;
    for (const Queue & queue : queues_) {
        n += queue.high.size() + queue.low.size();
    }
    return n;
}

void TransferPool::forget_queued() {
    for (Queue & queue : queues_) {
        queue.high.clear();
        queue.low.clear();
    }
}

std::optional<Arrival> TransferPool::try_arrival() {
    const Lock lock(mutex_);
    return pop();
}

std::optional<Arrival> TransferPool::wait_arrival(std::chrono::milliseconds timeout) {
    Lock lock(mutex_);
    assert(!arrivals_.empty() || n_queued() > 0 || n_copying_ > 0);
    arrived_.wait_for(lock.native(), timeout, [this]() REQUIRES(mutex_) { return !arrivals_.empty(); });
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

uint64_t TransferPool::busy_us() const {
    const Lock lock(mutex_);
    return busy_us_ + (n_batch_ > 0 ? now_us() - busy_since_us_ : 0);
}

void TransferPool::drain() {
    Lock lock(mutex_);
    forget_queued();
    arrived_.wait(lock.native(), [this]() REQUIRES(mutex_) { return n_batch_ == 0; });
    arrivals_.clear();
}

bool TransferPool::may_begin(const Queue & queue) const {
    return queue.high.empty() ? !queue.low.empty() && queue.n_batch < max_low_ : queue.n_batch < max_running_;
}

// Return a queue that may begin a copy, or null.
TransferPool::Queue * TransferPool::ready() {
    const auto it = std::find_if(queues_.begin(), queues_.end(), [this](const Queue & q) { return may_begin(q); });
    return it == queues_.end() ? nullptr : &*it;
}

// Begin the most urgent copy, with the queued copies that are read together with it. REQUIRES: something is queued.
TransferPool::Batch TransferPool::take(Queue & queue) {
    auto & copies = queue.high.empty() ? queue.low : queue.high;
    Batch batch{copies.front()};
    copies.pop_front();
    uint64_t bytes = work_.bytes(batch.back());
    while (!copies.empty() && bytes < work_.max_joined_bytes && work_.joins(batch.back(), copies.front())) {
        bytes += work_.bytes(copies.front());
        batch.push_back(copies.front());
        copies.pop_front();
    }
    queue.n_batch++;
    n_copying_ += batch.size();
    if (n_batch_++ == 0) {
        busy_since_us_ = now_us();
    }
    return batch;
}

// Copy a batch in this thread.
void TransferPool::perform(const Batch & batch) {
    std::vector<Arrival> arrivals;
    {
        const Unlocked unlocked(mutex_);
        arrivals = copy(batch);
    }
    end(batch, std::move(arrivals));
}

// Return whether what a ring has read is right. Unlocks for a while.
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
void TransferPool::end(const Batch & batch, std::vector<Arrival> arrivals) {
    if (work_.deliver) {
        const Unlocked unlocked(mutex_);  // deliver() may use another pool
        work_.deliver(batch, std::move(arrivals));
        arrivals.clear();
    }
    queues_[work_.drive(batch.front())].n_batch--;
    n_copying_ -= batch.size();
    if (--n_batch_ == 0) {
        busy_us_ += now_us() - busy_since_us_;
    }
    for (Arrival & a : arrivals) {
        arrivals_.push_back(std::move(a));
    }
    arrived_.notify_all();
}

void TransferPool::run() {
    Lock lock(mutex_);
    while (true) {
        Queue * queue = nullptr;
        work_there_.wait(lock.native(), [&]() REQUIRES(mutex_) { return stopping_ || (queue = ready()); });
        if (stopping_) {
            return;
        }
        perform(take(*queue));
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
            end(batch, copy(batch));  // the kernel lacks a resource
        }
    }
}

// The ring's thread: collect what it has read.
void TransferPool::run_ring() {
    std::vector<ReadRing::Done> done;
    while (true) {
        done.clear();
        ring_->wait(done);
        for (const auto & [id, whole] : done) {
            const Lock lock(mutex_);
            const Batch batch = std::move(in_ring_.extract(id).mapped());
            if (!whole || !is_sound(batch)) {
                perform(batch);
                continue;
            }
            std::vector<Arrival> arrivals;
            for (const Copy & c : batch) {
                arrivals.push_back({c.ticket, {}});
            }
            end(batch, std::move(arrivals));
        }
        const Lock lock(mutex_);
        if (stopping_) {
            if (n_batch_ == 0) {
                return;
            }
            continue;
        }
        begin_reads();
    }
}

}  // namespace outrider
