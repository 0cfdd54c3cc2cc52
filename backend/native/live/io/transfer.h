// Copies experts from the slow tier, with threads or with the kernel's own queue. The core decides which bytes are
// copied to which slot. The thread that owns the core collects the arrivals.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "live/ggml/thread_safety.h"
#include "live/io/read_ring.h"

namespace outrider {

struct Arrival {
    Ticket ticket;
    std::string error;  // empty: the copy is complete
};

// How a pool makes its copies. Any thread may call these.
struct CopyWork {
    // Perform copies; throw std::exception if one fails.
    std::function<void(std::span<const Copy>)> copy;
    // Return whether the second can be read together with the first, because its bytes follow.
    std::function<bool(const Copy &, const Copy &)> joins = [](const Copy &, const Copy &) { return false; };
    std::function<uint64_t(const Copy &)> bytes = [](const Copy &) { return uint64_t(0); };
    uint64_t max_joined_bytes = 0;  // bytes read together; a needed expert may have more
    double low_share = 0.5;  // largest share of the places that copies of low urgency take; with 1, spare ones too
    // Return the drive that a copy reads, below n_drive. Each drive has its own queue.
    std::function<size_t(const Copy &)> drive = [](const Copy &) { return size_t(0); };
    size_t n_drive = 1;
    // Append the reads that make these copies: for a ring.
    std::function<void(std::span<const Copy>, std::vector<ReadRing::Read> &)> reads{};
    // Checks copies that a ring has read; throws std::exception if one is wrong. `copy` checks its own.
    std::function<void(std::span<const Copy>)> check{};
    // Takes the arrivals of these copies, one for each, in their order. Without it, try_arrival() returns them.
    std::function<void(std::span<const Copy>, std::vector<Arrival>)> deliver{};
};

class TransferPool {
  public:
    // At most `n_running` batches (copies that are read together) of each drive are in flight: each in a thread of
    // the pool, or in the `ring` if there is one. `work.copy` repeats a batch that the ring read in part. With
    // `n_running` 0 a copy runs in submit(). Copies of low urgency take at most `work.low_share` of the places, so
    // that urgent ones find some free; spare ones begin alone, and are not read together. Reads of a ring end in the
    // thread that asks for arrivals. Its own thread runs only while copies are queued, to begin them: waking it would
    // take a core from computation.
    TransferPool(int n_running, CopyWork work, std::unique_ptr<ReadRing> ring = nullptr);
    // Wait for the copies in flight; drop the others.
    ~TransferPool();

    // Queue a copy, and begin queued copies while places are free. Copies that are submitted before begin() can be
    // read together.
    void submit(const Copy & copy);
    void begin();
    // Return whether the copy had not begun. It never will then, and no arrival follows.
    bool cancel(Ticket ticket);

    std::optional<Arrival> try_arrival();
    // Block until an arrival or the timeout. REQUIRES: n_open() > 0.
    std::optional<Arrival> wait_arrival(std::chrono::milliseconds timeout);
    // With a ring: end its finished reads. If that is nothing, wait for some until `until`; return false at once if
    // there is nothing to wait for, or another thread does. Then `deliver` gets the next arrival there.
    bool collect(ReadRing::Time until);
    // Return the number of copies submitted and neither collected nor cancelled.
    size_t n_open() const;
    // Return the time with at least one copy in flight. When nobody waited for the last one of a ring, its end is
    // reckoned by the fastest that were awaited.
    uint64_t busy_us();
    bool has_ring() const { return ring_ != nullptr; }
    // Drop the copies that have not begun, wait for the others, forget all arrivals.
    void drain();

  private:
    static constexpr size_t n_urgency = 3;
    using Batch = std::vector<Copy>;
    struct Queue {  // of a drive
        std::array<std::deque<Copy>, n_urgency> copies;  // queued: high, low, spare ones
        size_t n_batch = 0;  // in flight

        // Return the most urgent of `copies` with any, or n_urgency.
        size_t first() const {
            return size_t(std::ranges::find_if(copies, [](const auto & c) { return !c.empty(); }) - copies.begin());
        }
    };

    void run();
    void run_ring();
    void stop();
    bool may_begin(const Queue & queue) const;
    Queue * ready() REQUIRES(mutex_);
    size_t n_queued() const REQUIRES(mutex_);
    void forget_queued() REQUIRES(mutex_);
    Batch take(Queue & queue) REQUIRES(mutex_);
    void begin_reads() REQUIRES(mutex_);
    bool end_read(ReadRing::Time until, bool alone) REQUIRES(mutex_);
    std::optional<Arrival> pop() REQUIRES(mutex_);
    void perform(const Batch & batch) REQUIRES(mutex_);
    bool is_sound(const Batch & batch) REQUIRES(mutex_);
    std::vector<Arrival> copy(const Batch & batch) const;
    void end(const Batch & batch, std::vector<Arrival> arrivals, uint64_t ended_us) REQUIRES(mutex_);
    void count_busy(uint64_t ended_us) REQUIRES(mutex_);
    bool follows(const Copy & last, const Copy & next, uint64_t bytes) const;

    const CopyWork work_;
    const size_t max_running_;
    const std::array<size_t, n_urgency> most_;  // batches of a drive in flight at which these wait
    const std::unique_ptr<ReadRing> ring_;
    mutable Mutex mutex_;
    std::condition_variable work_there_;
    std::condition_variable arrived_;
    std::vector<Queue> queues_ GUARDED_BY(mutex_);  // [drive]
    std::deque<Arrival> arrivals_ GUARDED_BY(mutex_);
    size_t n_copying_ GUARDED_BY(mutex_) = 0;  // copies in flight
    size_t n_batch_ GUARDED_BY(mutex_) = 0;  // batches in flight, of all drives
    uint64_t last_id_ GUARDED_BY(mutex_) = 0;
    std::unordered_map<uint64_t, Batch> in_ring_ GUARDED_BY(mutex_);
    std::vector<ReadRing::Read> reads_ GUARDED_BY(mutex_);
    std::vector<ReadRing::Done> done_;  // of the thread that is collecting
    bool collecting_ GUARDED_BY(mutex_) = false;  // a thread waits for the ring
    bool followed_ GUARDED_BY(mutex_) = false;  // another one waits for what that delivers
    bool awaited_ GUARDED_BY(mutex_) = true;  // the last batch ended just when it was ended
    uint64_t busy_since_us_ GUARDED_BY(mutex_) = 0;  // if n_batch_ > 0
    uint64_t busy_bytes_ GUARDED_BY(mutex_) = 0;  // since then
    uint64_t busy_us_ GUARDED_BY(mutex_) = 0;  // before busy_since_us_
    double least_us_per_byte_ GUARDED_BY(mutex_);  // of the times that were busy
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<std::thread> threads_;
};

}  // namespace outrider
