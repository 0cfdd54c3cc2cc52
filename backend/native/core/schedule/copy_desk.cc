// INVARIANT: flights_[i].ticket = flights_[0].ticket + i; the first one is not over.
#include "core/schedule/copy_desk.h"

#include <algorithm>
#include <cassert>

namespace outrider {

void CopyDesk::order(Pool pool, Slot slot, Urgency urgency, bool by_chunk, Commands & out) {
    const uint32_t missing = residency_.take_missing_chunks(pool, slot);
    const SlotInfo & info = residency_.at(pool, slot);
    const auto issue = [&](uint32_t mask, Chunk chunk) {
        const Ticket ticket = next_ticket_++;
        flights_.push_back({ticket, {info.layer, info.part}, pool, slot, mask, urgency});
        out.push_back(Copy{ticket, info.layer, info.expert, info.part, chunk, slot, urgency});
    };
    if (!by_chunk && missing == residency_.all_chunks(info.layer)) {
        issue(missing, whole_expert);
        return;
    }
    for (Chunk c = 0; c < residency_.n_chunk(info.layer); c++) {
        if (missing & (1u << c)) {
            issue(1u << c, c);
        }
    }
}

Flight CopyDesk::end(Ticket ticket) {
    assert(!flights_.empty() && ticket >= flights_.front().ticket && ticket < next_ticket_);
    Flight & flight = flights_[size_t(ticket - flights_.front().ticket)];
    assert(flight.ticket == ticket && !flight.over);
    flight.over = true;
    const Flight ended = flight;
    while (!flights_.empty() && flights_.front().over) {
        flights_.pop_front();
    }
    return ended;
}

template <typename Is>
void CopyDesk::cancel(Is && is, Commands & out) const {
    for (const Flight & f : flights_) {
        if (!f.over && is(f)) {
            out.push_back(Cancel{f.ticket});
        }
    }
}

void CopyDesk::call_back_low(Place place, Slot slot, Commands & out) const {
    cancel(
        [&](const Flight & f) {
            return f.urgency != Urgency::high && f.place == place && (slot == none || f.slot == slot);
        },
        out);
}

void CopyDesk::call_back(Place place, Slot slot, Commands & out) const {
    cancel([&](const Flight & f) { return f.place == place && f.slot == slot; }, out);
}

void CopyDesk::call_back(Layer layer, Commands & out) const {
    cancel([&](const Flight & f) { return f.place.layer == layer; }, out);
}

template <typename Is>
int64_t CopyDesk::count(Is && is) const {
    return std::count_if(flights_.begin(), flights_.end(), [&](const Flight & f) { return !f.over && is(f); });
}

size_t CopyDesk::n_low(Layer layer) const {
    return size_t(count(
        [&](const Flight & f) { return f.urgency != Urgency::high && (layer == none || f.place.layer == layer); }));
}

int32_t CopyDesk::n_open(Layer layer) const {
    return int32_t(count([&](const Flight & f) { return f.place.layer == layer; }));
}

uint64_t CopyDesk::begun_bytes(int32_t n_copy, Layer but_of) const {
    uint64_t bytes = 0;
    for (auto f = flights_.begin(); f != flights_.end() && n_copy > 0; ++f) {
        if (!f->over) {
            bytes += f->place.layer == but_of ? 0 : residency_.bytes_of(f->place, f->mask);
            n_copy--;
        }
    }
    return bytes;
}

}  // namespace outrider
