// Brings experts from the slow tier, with threads or with the kernel's own queue. It only copies;
// what and where to is decided by the core, and the thread that owns the core collects what has
// arrived.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "live/io/read_ring.h"

namespace outrider {

struct Arrival {
    Ticket ticket;
    std::string error;  // empty: the copy is complete
};

// How the copies of a pool are made. All may be called from any thread.
struct CopyWork {
    // Performs copies; throws std::exception when one fails.
    std::function<void(std::span<const Copy>)> copy;
    // Whether the second is read together with the first, because its bytes lie behind it.
    std::function<bool(const Copy &, const Copy &)> joins = [](const Copy &, const Copy &) { return false; };
    std::function<uint64_t(const Copy &)> bytes = [](const Copy &) { return uint64_t(0); };
    uint64_t max_joined_bytes = 0;
    // The reads that make these copies, appended: for a ring.
    std::function<void(std::span<const Copy>, std::vector<ReadRing::Read> &)> reads{};
    // Who takes the arrivals of these copies, one for each, in their order; nobody: whoever asks the pool.
    std::function<void(std::span<const Copy>, std::vector<Arrival>)> deliver{};
};

class TransferPool {
  public:
    // At most `n_running` copies, or sets of them that are read together, are under way at the same
    // time: each in a thread of the pool, or in the `ring`, if there is one; what a ring could not
    // read as a whole is copied by `work.copy` after all. Without any, a copy runs in submit(), and
    // its arrival can be had at once. Low ones take half of the places at most, so that what is needed
    // at once never waits for all of them.
    TransferPool(int n_running, CopyWork work, std::unique_ptr<ReadRing> ring = nullptr);
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
    bool has_ring() const { return ring_ != nullptr; }
    // Drops what has not begun, waits for the rest, forgets all arrivals.
    void drain();

  private:
    using Clock = std::chrono::steady_clock;
    using Batch = std::vector<Copy>;  // what is read together

    void run();
    void run_ring();
    void stop();
    bool may_begin() const;
    Batch take();
    void begin_reads(std::unique_lock<std::mutex> & lock);
    void began(const Batch & batch);
    std::vector<Arrival> copy(const Batch & batch) const;
    void end(const Batch & batch, std::vector<Arrival> arrivals, std::unique_lock<std::mutex> & lock);

    const CopyWork work_;
    const size_t max_running_;
    const size_t max_low_;  // a low one begins only where fewer are under way
    std::unique_ptr<ReadRing> ring_;
    mutable std::mutex mutex_;
    std::condition_variable work_there_;
    std::condition_variable arrived_;
    std::deque<Copy> high_;
    std::deque<Copy> low_;
    std::deque<Arrival> arrivals_;
    size_t n_copying_ = 0;            // copies under way
    size_t n_batch_ = 0;              // and the sets that they form
    uint64_t last_id_ = 0;
    std::unordered_map<uint64_t, Batch> in_ring_;
    std::vector<ReadRing::Read> reads_;
    Clock::time_point busy_since_{};  // where something runs
    Clock::duration busy_{};          // before that
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outrider
