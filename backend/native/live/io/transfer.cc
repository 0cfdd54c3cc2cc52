#include "live/io/transfer.h"

#include <algorithm>
#include <cassert>

namespace outrider {

TransferPool::TransferPool(int n_running, CopyWork work, std::unique_ptr<ReadRing> ring)
    : work_(std::move(work)),
      max_running_(size_t(n_running)),
      max_low_((max_running_ + 1) / 2),
      ring_(std::move(ring)) {
    try {
        for (int i = 0; i < (ring_ ? 1 : n_running); i++) {
            threads_.emplace_back([this] { ring_ ? run_ring() : run(); });
        }
    } catch (...) {
        stop();  // those that were started
        throw;
    }
}

TransferPool::~TransferPool() { stop(); }

void TransferPool::stop() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
        high_.clear();
        low_.clear();
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
    std::unique_lock lock(mutex_);
    (copy.urgency == Urgency::high ? high_ : low_).push_back(copy);
    if (ring_) {
        begin_reads(lock);
    } else if (threads_.empty()) {
        const Batch batch = take();
        began(batch);
        lock.unlock();
        auto arrivals = this->copy(batch);
        lock.lock();
        end(batch, std::move(arrivals), lock);
    } else {
        lock.unlock();
        work_there_.notify_one();
    }
}

bool TransferPool::cancel(Ticket ticket) {
    std::lock_guard lock(mutex_);
    for (auto * queue : {&low_, &high_}) {
        const auto it = std::find_if(queue->begin(), queue->end(), [&](const Copy & c) { return c.ticket == ticket; });
        if (it != queue->end()) {
            queue->erase(it);
            return true;
        }
    }
    return false;
}

std::optional<Arrival> TransferPool::try_arrival() {
    std::lock_guard lock(mutex_);
    if (arrivals_.empty()) {
        return std::nullopt;
    }
    Arrival a = std::move(arrivals_.front());
    arrivals_.pop_front();
    return a;
}

std::optional<Arrival> TransferPool::wait_arrival(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    assert(!arrivals_.empty() || !high_.empty() || !low_.empty() || n_copying_ > 0);
    arrived_.wait_for(lock, timeout, [&] { return !arrivals_.empty(); });
    if (arrivals_.empty()) {
        return std::nullopt;
    }
    Arrival a = std::move(arrivals_.front());
    arrivals_.pop_front();
    return a;
}

size_t TransferPool::n_open() const {
    std::lock_guard lock(mutex_);
    return high_.size() + low_.size() + n_copying_ + arrivals_.size();
}

uint64_t TransferPool::busy_us() const {
    std::lock_guard lock(mutex_);
    const auto busy = busy_ + (n_batch_ > 0 ? Clock::now() - busy_since_ : Clock::duration{});
    return uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
}

void TransferPool::drain() {
    std::unique_lock lock(mutex_);
    high_.clear();
    low_.clear();
    arrived_.wait(lock, [&] { return n_batch_ == 0; });
    arrivals_.clear();
}

// REQUIRES: the lock is held.
bool TransferPool::may_begin() const {
    return high_.empty() ? !low_.empty() && n_batch_ < max_low_ : n_batch_ < max_running_;
}

// The most urgent copy, with those behind it that are read together with it.
// REQUIRES: the lock is held; something is queued.
TransferPool::Batch TransferPool::take() {
    auto & queue = high_.empty() ? low_ : high_;
    Batch batch{queue.front()};
    queue.pop_front();
    uint64_t bytes = work_.bytes(batch.back());
    while (!queue.empty() && bytes < work_.max_joined_bytes && work_.joins(batch.back(), queue.front())) {
        bytes += work_.bytes(queue.front());
        batch.push_back(queue.front());
        queue.pop_front();
    }
    return batch;
}

// REQUIRES: the lock is held.
void TransferPool::began(const Batch & batch) {
    n_copying_ += batch.size();
    if (n_batch_++ == 0) {
        busy_since_ = Clock::now();
    }
}

// Performs a batch; where it fails, each of its copies by itself.
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

// A batch is over. REQUIRES: the lock is held; it is given back in between.
void TransferPool::end(const Batch & batch, std::vector<Arrival> arrivals, std::unique_lock<std::mutex> & lock) {
    if (work_.deliver) {
        lock.unlock();  // whoever takes them may use another pool
        work_.deliver(batch, std::move(arrivals));
        arrivals.clear();
        lock.lock();
    }
    n_copying_ -= batch.size();
    if (--n_batch_ == 0) {
        busy_ += Clock::now() - busy_since_;
    }
    for (Arrival & a : arrivals) {
        arrivals_.push_back(std::move(a));
    }
    arrived_.notify_all();
}

void TransferPool::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        work_there_.wait(lock, [&] { return stopping_ || may_begin(); });
        if (stopping_) {
            return;
        }
        const Batch batch = take();
        began(batch);
        lock.unlock();
        auto arrivals = copy(batch);
        lock.lock();
        end(batch, std::move(arrivals), lock);
    }
}

// Gives the ring as much as may be under way. REQUIRES: the lock is held.
void TransferPool::begin_reads(std::unique_lock<std::mutex> & lock) {
    while (may_begin()) {
        Batch batch = take();
        began(batch);
        reads_.clear();
        work_.reads(batch, reads_);
        const uint64_t id = ++last_id_;
        if (ring_->begin(id, reads_)) {
            in_ring_.emplace(id, std::move(batch));
        } else {
            end(batch, copy(batch), lock);  // the kernel is short of something; this thread is not
        }
    }
}

// What the ring has read has arrived.
void TransferPool::run_ring() {
    std::vector<ReadRing::Done> done;
    while (true) {
        done.clear();
        ring_->wait(done);
        for (const auto & [id, whole] : done) {
            std::unique_lock lock(mutex_);
            const Batch batch = std::move(in_ring_.extract(id).mapped());
            std::vector<Arrival> arrivals;
            if (whole) {
                for (const Copy & c : batch) {
                    arrivals.push_back({c.ticket, {}});
                }
            } else {
                lock.unlock();
                arrivals = copy(batch);
                lock.lock();
            }
            end(batch, std::move(arrivals), lock);
        }
        std::unique_lock lock(mutex_);
        if (stopping_) {
            if (n_batch_ == 0) {
                return;
            }
            continue;
        }
        begin_reads(lock);
    }
}

}  // namespace outrider
