// Threads that bring experts from the slow tier. They only copy; what and where to is decided by
// the core, and the thread that owns the core collects what has arrived.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../core/types.h"

namespace outrider {

struct Arrival {
    Ticket ticket;
    std::string error;  // empty: the copy is complete
};

class TransferPool {
  public:
    // `copy` performs one copy; it runs on a pool thread and throws std::exception when it fails.
    // Without threads it runs in submit(), and its arrival can be had at once.
    TransferPool(int n_thread, std::function<void(const Copy &)> copy);
    // Waits for copies that have begun; drops the others.
    ~TransferPool();

    void submit(const Copy & copy);
    // True when the copy had not begun: it never will, and no arrival follows.
    bool cancel(Ticket ticket);

    std::optional<Arrival> try_arrival();
    // Blocks until something arrives, or the time is over. REQUIRES: n_open() > 0.
    std::optional<Arrival> wait_arrival(std::chrono::milliseconds timeout);
    // Copies submitted whose end has neither been collected nor cancelled.
    size_t n_open() const;
    // Time since the start in which at least one copy was under way.
    uint64_t busy_us() const;
    // Drops what has not begun, waits for the rest, forgets all arrivals.
    void drain();

  private:
    using Clock = std::chrono::steady_clock;

    void run();
    void perform(const Copy & copy, std::unique_lock<std::mutex> & lock);
    void stop();

    std::function<void(const Copy &)> copy_;
    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable arrived_;
    std::deque<Copy> high_;
    std::deque<Copy> low_;
    std::deque<Arrival> arrivals_;
    size_t n_running_ = 0;
    Clock::time_point busy_since_{};  // where something runs
    Clock::duration busy_{};          // before that
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outrider
