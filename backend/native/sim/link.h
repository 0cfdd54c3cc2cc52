// The link in virtual time: what live/transfer.cc does with threads. High copies go before low ones, each kind in order
// of submission. A copy that has begun is not preempted. Low copies take at most half of the places, and spare ones
// begin while none is in flight, but for small ones. The copies in flight share the bandwidth equally. Copies whose
// bytes lie together, as in a pack, can be one read: they take one place and one latency, and arrive together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/types.h"

namespace outrider {

class Link {
  public:
    static constexpr int64_t apart = -1;

    // REQUIRES: bytes_per_us > 0, latency_us >= 0, n_at_once >= 1. `joined_bytes`: bytes read together; high copies
    // may have more.
    Link(double bytes_per_us, double latency_us, int32_t n_at_once, double joined_bytes = 0);

    // At clock(); it begins at begin(). Copies of the same range, submitted in succession, can be one read; `apart`:
    // this one cannot.
    void submit(Ticket ticket, Urgency urgency, double n_bytes, int64_t range = apart);
    // Begin queued copies while places are free.
    void begin();
    // True if the copy had not begun at clock(). Then it never begins, and no arrival follows.
    bool cancel(Ticket ticket);

    double clock_us() const { return clock_us_; }
    double busy_us() const { return busy_us_; }
    // Advance the clock. REQUIRES: until_us >= clock_us().
    void advance(double until_us);
    // Advance the clock until a copy has arrived. False if none arrives up to the limit; then the clock stands at the
    // limit, or where it was if there is no limit.
    bool advance_to_arrival(double limit_us = std::numeric_limits<double>::infinity());
    // The next copy that has ended, in the order of their ends.
    bool take_arrival(Ticket & ticket);

    // When the next copy ends or begins to flow; infinity without a copy in flight.
    double next_event_us() const;

  private:
    struct Waiting {
        Ticket ticket;
        double n_bytes;
        int64_t range;
    };
    struct Queue {  // a cancelled item keeps its place, without a ticket
        std::vector<Waiting> items;
        size_t head = 0;
    };
    struct Running {
        std::vector<Ticket> tickets;
        double flows_from_us;
        double n_bytes;  // left
    };

    bool begin_next(Queue & queue, bool is_high);
    size_t max_spare();
    void step(double at_us);

    double bytes_per_us_;
    double latency_us_;
    size_t n_at_once_;
    double joined_bytes_;
    size_t n_low_;  // a low copy begins only if fewer are in flight
    double clock_us_ = 0;
    double busy_us_ = 0;
    Queue high_, low_, spare_;
    std::vector<Running> running_;  // in the order in which they began
    std::vector<Ticket> arrivals_;
    size_t n_taken_ = 0;  // of arrivals_
};

}  // namespace outrider
