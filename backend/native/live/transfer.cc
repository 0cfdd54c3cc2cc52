#include "transfer.h"

#include <algorithm>
#include <cassert>

namespace outrider {

TransferPool::TransferPool(int n_thread, std::function<void(const Copy &)> copy) : copy_(std::move(copy)) {
    try {
        for (int i = 0; i < n_thread; i++) {
            threads_.emplace_back([this] { run(); });
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
    }
    work_.notify_all();
    for (auto & t : threads_) {
        t.join();
    }
}

void TransferPool::submit(const Copy & copy) {
    {
        std::unique_lock lock(mutex_);
        if (threads_.empty()) {
            perform(copy, lock);
            return;
        }
        (copy.urgency == Urgency::high ? high_ : low_).push_back(copy);
    }
    work_.notify_one();
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
    assert(!arrivals_.empty() || !high_.empty() || !low_.empty() || n_running_ > 0);
    if (!arrived_.wait_for(lock, timeout, [&] { return !arrivals_.empty(); })) {
        return std::nullopt;
    }
    Arrival a = std::move(arrivals_.front());
    arrivals_.pop_front();
    return a;
}

size_t TransferPool::n_open() const {
    std::lock_guard lock(mutex_);
    return high_.size() + low_.size() + n_running_ + arrivals_.size();
}

uint64_t TransferPool::busy_us() const {
    std::lock_guard lock(mutex_);
    const auto busy = busy_ + (n_running_ > 0 ? Clock::now() - busy_since_ : Clock::duration{});
    return uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
}

void TransferPool::drain() {
    std::unique_lock lock(mutex_);
    high_.clear();
    low_.clear();
    arrived_.wait(lock, [&] { return n_running_ == 0; });
    arrivals_.clear();
}

void TransferPool::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        work_.wait(lock, [&] { return stopping_ || !high_.empty() || !low_.empty(); });
        if (stopping_) {
            return;
        }
        auto & queue = high_.empty() ? low_ : high_;
        const Copy copy = queue.front();
        queue.pop_front();
        perform(copy, lock);
    }
}

// REQUIRES: the lock is held; it is given up while the copy runs.
void TransferPool::perform(const Copy & copy, std::unique_lock<std::mutex> & lock) {
    if (n_running_++ == 0) {
        busy_since_ = Clock::now();
    }
    lock.unlock();
    Arrival arrival{copy.ticket, {}};
    try {
        copy_(copy);
    } catch (const std::exception & e) {
        arrival.error = e.what();
    }
    lock.lock();
    if (--n_running_ == 0) {
        busy_ += Clock::now() - busy_since_;
    }
    arrivals_.push_back(std::move(arrival));
    arrived_.notify_all();
}

}  // namespace outrider
