// The copies between their order and their end: what all schedulers of a core share, so that one
// may end what another began.
#pragma once

#include <deque>

#include "../residency.h"

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
    // Its tickets begin with `first`, so that several desks of a core do not mix theirs up.
    explicit CopyDesk(Residency & residency, Ticket first = 1) : residency_(residency), next_ticket_(first) {}

    // Orders what the slot lacks: chunk by chunk, or all that is missing at once if nothing has
    // come yet. REQUIRES: pending.
    void order(Pool pool, Slot slot, Urgency urgency, bool by_chunk, Commands & out);
    // The copy has ended in whatever way. REQUIRES: it was ordered and has not ended.
    Flight end(Ticket ticket);

    // Calls back low copies of the place (of one slot of it, or of all when `none`).
    void call_back_low(Place place, Slot slot, Commands & out) const;
    // Calls back every copy into this slot of the place.
    void call_back(Place place, Slot slot, Commands & out) const;
    // Whether any copy has been ordered and has not ended.
    bool any_open() const { return !flights_.empty(); }
    // How many copies were ordered ahead of need, for this layer or (`none`) for any, and have not ended.
    size_t n_low(Layer layer) const;
    // Copies of the layer that were ordered and have not ended.
    int32_t n_open(Layer layer) const;
    // Bytes of the `n_copy` copies that were ordered first and have not ended, but for the layer's: those
    // that may have begun.
    uint64_t begun_bytes(int32_t n_copy, Layer but_of) const;

    // Calls back every copy of the layer.
    void call_back(Layer layer, Commands & out) const;

  private:
    Residency & residency_;
    std::deque<Flight> flights_;  // by ticket, without gaps: tickets are consecutive
    Ticket next_ticket_;
};

}  // namespace outrider
