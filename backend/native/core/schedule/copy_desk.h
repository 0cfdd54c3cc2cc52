// The copies in flight: ordered and not ended. All schedulers of a core share one desk, so that one may end what
// another began.
#pragma once

#include <deque>

#include "core/residency.h"

namespace outrider {

struct Flight {
    Ticket ticket = 0;
    Place place{};
    Pool pool = none;
    Slot slot = none;
    uint32_t mask = 0;
    Urgency urgency = Urgency::low;
    bool over = false;
};

class CopyDesk {
  public:
    // `first`: its first ticket. The desks of a core use different ranges.
    explicit CopyDesk(Residency & residency, Ticket first = 1) : residency_(residency), next_ticket_(first) {}

    // Order the chunks that the slot lacks and that are not in flight: one copy for each chunk, or one for all if the
    // whole expert is missing. REQUIRES: pending.
    void order(Pool pool, Slot slot, Urgency urgency, bool by_chunk, Commands & out);
    // The copy has ended: copied, cancelled or failed. REQUIRES: it is in flight.
    Flight end(Ticket ticket);

    // Cancel copies, but for high ones, into one slot of the place, or (`none`) into all.
    void call_back_low(Place place, Slot slot, Commands & out) const;
    // Cancel every copy into this slot of the place.
    void call_back(Place place, Slot slot, Commands & out) const;
    // Cancel every copy of the layer.
    void call_back(Layer layer, Commands & out) const;

    bool any_open() const { return !flights_.empty(); }
    // Copies in flight, but for high ones, for the layer, or (`none`) for all.
    size_t n_low(Layer layer) const;
    // Copies in flight for the layer.
    int32_t n_open(Layer layer) const;
    // Bytes of the first `n_copy` copies in flight, which may have begun, without those of one layer.
    uint64_t begun_bytes(int32_t n_copy, Layer but_of) const;

  private:
    template <typename Is>
    void cancel(Is && is, Commands & out) const;
    template <typename Is>
    int64_t count(Is && is) const;

    Residency & residency_;
    std::deque<Flight> flights_;  // by ticket, without gaps: tickets are consecutive
    Ticket next_ticket_;
};

}  // namespace outrider
