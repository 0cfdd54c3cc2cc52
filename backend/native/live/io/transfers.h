// All copies of a cache: from the file, and where there is a store in the host's memory, from there to
// the devices. A copy from the store that is ordered before its bytes are there begins when they come,
// without the thread that owns the core.
#pragma once

#include <cstddef>

#include "live/io/transfer.h"

namespace outrider {

class Transfers {
  public:
    // What is known of the store: how many chunks and slots each layer has; empty: there is none.
    struct Store {
        std::vector<int32_t> n_chunk;  // [layer]
        std::vector<int32_t> n_slot;   // [layer]
        CopyWork send{};               // performs copies from the store
        int n_sending = 1;             // of them at once
    };

    // As TransferPool: `n_running` copies from the file at once, 0: each in submit().
    Transfers(int n_running, CopyWork read, std::unique_ptr<ReadRing> ring, Store store);

    void submit(const Copy & copy);
    // True when the copy had not begun: it never will, and no arrival follows.
    bool cancel(Ticket ticket);
    std::optional<Arrival> try_arrival();
    // Blocks until something arrives, wake() is called or the time is over. REQUIRES: n_open() > 0.
    std::optional<Arrival> wait_arrival(std::chrono::milliseconds timeout);
    // Has wait_arrival() return, the next one if none waits now. From any thread.
    void wake();
    // Copies submitted whose end has neither been collected nor cancelled.
    size_t n_open() const;
    // Drops what has not begun, waits for the rest, forgets all arrivals.
    void drain();

    // Time in which at least one copy into slots was under way, and one from the file.
    uint64_t link_busy_us() const { return sends_ ? sends_->busy_us() : reads_->busy_us(); }
    uint64_t file_busy_us() const { return reads_->busy_us(); }
    bool has_ring() const { return reads_->has_ring(); }

  private:
    struct Content {  // of a slot of the store; bit per chunk
        uint32_t here = 0;
        uint32_t failed = 0;
    };

    uint32_t mask_of(const Copy & copy) const;
    Content & content(Layer layer, Slot slot) { return contents_[size_t(layer)][size_t(slot)]; }
    void send_when_there(const Copy & copy);
    void deliver(std::span<const Copy> copies, std::vector<Arrival> arrivals);
    std::optional<Arrival> pop();

    const std::vector<int32_t> n_chunk_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Arrival> arrivals_;
    size_t n_open_ = 0;
    bool woken_ = false;
    std::vector<std::vector<Content>> contents_;  // [layer][slot]
    std::vector<Copy> waiting_;                   // for their bytes, in the order in which they were submitted
    std::string read_error_;                      // of the last read into the store that failed
    // Reading ends first: what has been read may still be sent on.
    std::unique_ptr<TransferPool> sends_;  // null: there is no store
    std::unique_ptr<TransferPool> reads_;
};

}  // namespace outrider
