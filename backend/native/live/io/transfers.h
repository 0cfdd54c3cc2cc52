// All copies of a cache: from the file, and from the host store to the devices if there is one. A copy from the store
// may be ordered before its bytes are there. It begins when they arrive, without the thread that owns the core.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/copy_schedule.h"
#include "live/io/copy_stream.h"
#include "live/io/transfer.h"

namespace outrider {

class Transfers {
  public:
    // The host store; empty: there is none.
    struct Store {
        std::vector<int32_t> n_chunk;  // [layer]
        std::vector<int32_t> n_slot;   // [layer]
        std::vector<std::pair<Layer, Slot>> kept{};  // slots whose bytes are there
        CopyWork send{};               // copies from the store, but for its `copy`
        // Performs copies; see CopyStream::send(). Throws std::exception if one fails.
        std::function<void(std::span<const Copy>, const CopyStream::Begun &)> copy{};
        int n_sending = 1;             // of them in flight
    };

    // As TransferPool: `n_running` batches from the file in flight; 0: each copy runs in submit().
    // `schedule`: says when copies end, for tests; null: they end when they end. A copy runs when it ends then.
    // REQUIRES: with a schedule, n_running = 0.
    Transfers(int n_running, CopyWork read, std::unique_ptr<ReadRing> ring, Store store,
              std::unique_ptr<CopySchedule> schedule = nullptr);

    // As TransferPool.
    void submit(const Copy & copy);
    void begin() { reads_->begin(); }
    bool cancel(Ticket ticket);
    std::optional<Arrival> try_arrival();
    // Block until an arrival, wake() or the timeout. REQUIRES: n_open() > 0.
    std::optional<Arrival> wait_arrival(std::chrono::milliseconds timeout);
    // Give each copy into slots of `layer` that is on its way and `wanted` to `wait`, which lets a stream wait for it.
    // Return their tickets; they count as collected.
    std::vector<Ticket> hand_over(Layer layer, const std::function<bool(const Copy &)> & wanted,
                                  const std::function<void(ggml_backend_event_t)> & wait) EXCLUDES(mutex_);
    // Whether begun() ends wait_arrival().
    void tell_begun(bool wanted) EXCLUDES(mutex_);
    // Return when the last copy was there that hand_over() returned; now, if one is not.
    uint64_t handed_over_us() const EXCLUDES(mutex_);
    // End wait_arrival(), or the next one if none waits now. From any thread. REQUIRES: there is no ring.
    void wake();
    size_t n_open() const;
    void drain();

    // Return whether the schedule stops the pass in progress now.
    bool stops() { return schedule_ && schedule_->stops(); }

    // Return the time with at least one copy into slots in flight.
    uint64_t link_busy_us() { return sends_ ? sends_->busy_us() : reads_->busy_us(); }
    bool has_ring() const { return reads_->has_ring(); }

  private:
    struct Content {  // of a slot of the store; a bit for each chunk
        uint32_t here = 0;
        uint32_t failed = 0;
    };

    uint32_t mask_of(const Copy & copy) const;
    Content & content(Layer layer, Slot slot) REQUIRES(mutex_) { return contents_[size_t(layer)][size_t(slot)]; }
    void send_when_there(const Copy & copy) EXCLUDES(mutex_);
    void begun(std::span<const Copy> copies, ggml_backend_event_t event) EXCLUDES(mutex_);
    void deliver(std::span<const Copy> copies, std::vector<Arrival> arrivals) EXCLUDES(mutex_);
    void order(const Copy & copy) EXCLUDES(mutex_);
    void end_scheduled(bool waits) EXCLUDES(mutex_);
    std::optional<Arrival> pop() REQUIRES(mutex_);
    bool end_way(Ticket ticket) REQUIRES(mutex_);

    const std::vector<int32_t> n_chunk_;
    const std::unique_ptr<CopySchedule> schedule_;  // or null
    mutable Mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Arrival> arrivals_ GUARDED_BY(mutex_);
    size_t n_open_ GUARDED_BY(mutex_) = 0;
    bool woken_ GUARDED_BY(mutex_) = false;
    std::vector<std::vector<Content>> contents_ GUARDED_BY(mutex_);  // [layer][slot]
    std::vector<Copy> waiting_ GUARDED_BY(mutex_);  // for their bytes, as submitted
    std::string read_error_ GUARDED_BY(mutex_);  // of the last failed read into the store
    struct OnItsWay {
        Copy copy;
        ggml_backend_event_t event;
        bool is_handed_over = false;
    };
    std::vector<OnItsWay> on_their_way_ GUARDED_BY(mutex_);
    bool tells_begun_ GUARDED_BY(mutex_) = false;
    uint64_t handed_over_us_ GUARDED_BY(mutex_) = 0;
    // Reads end first (the last member is destroyed first): they may submit sends.
    std::unique_ptr<TransferPool> sends_;  // null: there is no store
    std::unique_ptr<TransferPool> reads_;
};

}  // namespace outrider
