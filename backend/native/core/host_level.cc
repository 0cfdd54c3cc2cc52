#include "core/host_level.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace outrider {

HostLevel::HostLevel(const Shape & shape, const Residency & slots, const Eviction & eviction,
                     std::vector<int32_t> n_slot)
    : slots_(slots),
      eviction_(eviction),
      n_slot_(std::move(n_slot)),
      residency_(shape, layout_of(n_slot_)),
      desk_(residency_, first_ticket),
      wanted_(n_slot_.size(), std::vector<uint8_t>(size_t(shape.n_expert), 0)),
      counts_(n_slot_.size()) {
    for (const int32_t n : n_slot_) {
        users_.emplace_back(size_t(n), 0);
    }
    for (Layer l = 0; l < shape.n_layer; l++) {
        const Pool pool = slots.pool({l, part_in_slots(l)});
        const auto & layers = slots.layout().layers;
        const auto n_user = std::count_if(layers.begin(), layers.end(),
                                          [&](const auto & x) { return x.pool[0] == pool || x.pool[1] == pool; });
        is_exclusive_.push_back(n_slot_[size_t(l)] * n_user <= slots.n_slot(pool));
    }
}

// A residency has at least one slot in each pool: a layer that is not served has one that is never used.
Layout HostLevel::layout_of(const std::vector<int32_t> & n_slot) {
    if (std::any_of(n_slot.begin(), n_slot.end(), [](int32_t n) { return n < 0; })) {
        throw std::invalid_argument("A layer has no slots");
    }
    std::vector<int32_t> at_least_one;
    for (const int32_t n : n_slot) {
        at_least_one.push_back(std::max(n, 1));
    }
    return Layout::per_layer(at_least_one);
}

std::vector<int32_t> HostLevel::divide(const Shape & shape, const std::vector<bool> & served, uint64_t n_byte) {
    std::vector<int32_t> n_slot(size_t(shape.n_layer), 0);
    for (int32_t n = 1; n <= shape.n_expert; n++) {
        for (Layer l = 0; l < shape.n_layer; l++) {
            if (!served[size_t(l)]) {
                continue;
            }
            const uint64_t expert = shape.expert_bytes(l);
            if (expert > n_byte) {
                return n_slot;
            }
            n_byte -= expert;
            n_slot[size_t(l)] = n;
        }
    }
    return n_slot;
}

// ---- events ---------------------------------------------------------------------------------

void HostLevel::filter(const Event & event, Commands & out, size_t first) {
    note_needs(event);
    unfiltered_.assign(out.begin() + int64_t(first), out.end());
    out.resize(first, Cancel{});
    for (const Command & command : unfiltered_) {
        const auto * copy = std::get_if<Copy>(&command);
        if (copy && copy->route == Route::file_to_slot && n_slot(copy->layer) > 0) {
            redirect(*copy, out);
        } else {
            out.push_back(command);
        }
    }
    // After the redirection: the scheduler may have ordered a cancelled expert again.
    std::visit(
        Overloaded{
            [&](const Copied & e) { owns(e.ticket) ? copied(e.ticket) : end_use(e.ticket, true, out); },
            [&](const Cancelled & e) { owns(e.ticket) ? cancelled(e.ticket, out) : end_use(e.ticket, false, out); },
            [&](const Failed & e) { owns(e.ticket) ? failed(e.ticket) : end_use(e.ticket, false, out); },
            [&](const Routed & e) { drop_unwanted(e.routing.layer, out); },
            [](const auto &) {},
        },
        event);
    for (const Forecast & forecast : expected_) {
        fetch(forecast, out);
    }
    expected_.clear();
}

// Experts that the layer in progress still needs are not evicted.
void HostLevel::note_needs(const Event & event) {
    std::visit(Overloaded{
                   [&](const PassBegan &) { residency_.reclaim(); },
                   [&](const Routed & e) {
                       for (Expert expert : e.routing.ids) {
                           wanted(e.routing.layer, expert) = n_slot(e.routing.layer) > 0;
                       }
                   },
                   [&](const Computed & e) {
                       if (e.part != Part::top || !slots_.layout().layers[size_t(e.layer)].is_cut()) {
                           wanted(e.layer, e.expert) = 0;
                       }
                   },
                   [&](const Aborted &) {
                       for (auto & wanted : wanted_) {
                           std::fill(wanted.begin(), wanted.end(), uint8_t(0));
                       }
                   },
                   [](const auto &) {},
               },
               event);
}

void HostLevel::expect(const Forecast & forecast) {
    if (n_slot(forecast.layer) > 0) {
        expected_.push_back(forecast);
    }
}

void HostLevel::copied(Ticket ticket) {
    const Flight flight = desk_.end(ticket);
    counts_[size_t(flight.place.layer)].bytes_read += residency_.bytes_of(flight.place, flight.mask);
    residency_.chunks_arrived(flight.pool, flight.slot, flight.mask);
    settle(flight.place.layer, flight.slot);
}

void HostLevel::cancelled(Ticket ticket, Commands & out) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_cancelled(flight.pool, flight.slot, flight.mask);
    const SlotInfo & info = residency_.at(flight.pool, flight.slot);
    if (users(info.layer, flight.slot) > 0 && !info.broken) {
        order(info.layer, flight.slot, Urgency::high, true, out);  // it was cancelled to be queued high
        return;
    }
    settle(flight.place.layer, flight.slot);
}

void HostLevel::failed(Ticket ticket) {
    const Flight flight = desk_.end(ticket);
    residency_.chunks_failed(flight.pool, flight.slot, flight.mask);
    settle(flight.place.layer, flight.slot);
}

// ---- copies into slots ------------------------------------------------------------------------

void HostLevel::redirect(Copy copy, Commands & out) {
    const Layer layer = copy.layer;
    Slot slot = residency_.find(place(layer), copy.expert);
    if (slot == none) {
        slot = acquire(layer, copy.expert);
        if (slot != none) {
            residency_.assign(place(layer), slot, copy.expert, copy.urgency != Urgency::high);
        }
    }
    if (slot == none || residency_.at(layer, slot).broken) {
        out.push_back(copy);  // straight from the file
        return;
    }
    const bool whole = copy.chunk == whole_expert;
    const uint32_t mask = whole ? residency_.all_chunks(layer) : 1u << copy.chunk;
    const bool found = (residency_.at(layer, slot).arrived & mask) == mask;
    if (!found) {
        if (copy.urgency == Urgency::high) {
            desk_.call_back_low(place(layer), slot, out);
        }
        order(layer, slot, copy.urgency, !whole, out);
    }
    sources_[copy.ticket] = {layer, copy.expert, slots_.bytes_of({layer, copy.part}, mask), found};
    users(layer, slot)++;
    copy.route = Route::host_to_slot;
    copy.from_slot = slot;
    out.push_back(copy);
}

// Orders from the file the chunks that the slot lacks and that are not in flight.
void HostLevel::order(Layer layer, Slot slot, Urgency urgency, bool by_chunk, Commands & out) {
    const size_t first = out.size();
    desk_.order(layer, slot, urgency, by_chunk, out);
    for (size_t i = first; i < out.size(); i++) {
        std::get<Copy>(out[i]).route = Route::file_to_host;
    }
}

// Fetches into the store the experts of a forecast for which the slots have no room or which lie beyond the depth.
void HostLevel::fetch(const Forecast & forecast, Commands & out) {
    const Layer layer = forecast.layer;
    for (const Expert e : forecast.experts) {
        if (in_slots(layer, e) || slots_.find({layer, Part::staged}, e) != none ||
            residency_.find(place(layer), e) != none) {
            continue;
        }
        const Slot slot = acquire(layer, e);
        if (slot != none) {
            residency_.assign(place(layer), slot, e, true);
            order(layer, slot, Urgency::low, true, out);
        }
    }
}

// A copy into a slot is over.
void HostLevel::end_use(Ticket ticket, bool is_there, Commands & out) {
    const auto it = sources_.find(ticket);
    if (it == sources_.end()) {
        return;  // it came straight from the file
    }
    const Source source = it->second;
    sources_.erase(it);
    if (is_there) {
        HostCounts & counts = counts_[size_t(source.layer)];
        (source.found ? counts.bytes_found : counts.bytes_awaited) += source.n_byte;
    }
    const Slot slot = residency_.find(place(source.layer), source.expert);
    assert(slot != none);
    if (is_there) {
        residency_.mark_used(source.layer, slot);
    }
    if (--users(source.layer, slot) == 0) {
        if (!is_there) {
            desk_.call_back(place(source.layer), slot, out);
        }
        settle(source.layer, slot);
    }
}

// At the gate: cancels the fetches for the layer that are not needed.
void HostLevel::drop_unwanted(Layer layer, Commands & out) {
    for (Slot slot = 0; slot < n_slot(layer); slot++) {
        const SlotInfo & info = residency_.at(layer, slot);
        if (info.flying != 0 && users(layer, slot) == 0 && !wanted(layer, info.expert)) {
            desk_.call_back_low(place(layer), slot, out);
        }
    }
}

// After a copy or a use of a slot has ended: releases half an expert that nobody waits for.
void HostLevel::settle(Layer layer, Slot slot) {
    const SlotInfo & info = residency_.at(layer, slot);
    if (info.state == SlotState::pending && info.flying == 0 && users(layer, slot) == 0) {
        residency_.release(layer, slot);
    }
}

// ---- slots of the store ---------------------------------------------------------------------

Part HostLevel::part_in_slots(Layer layer) const {
    return slots_.pool(place(layer)) != none ? Part::top : Part::bottom;
}

double HostLevel::worth(Layer layer, Expert expert) const {
    return eviction_.keep(layer, part_in_slots(layer), expert);
}

Slot HostLevel::acquire(Layer layer, Expert expert) {
    if (const Slot slot = residency_.free_slot(layer); slot != none) {
        return slot;
    }
    const Slot victim = least_worthy(layer, worth(layer, expert));
    if (victim != none) {
        residency_.release(layer, victim);
    }
    return victim;
}

// The least worthy expert that may be evicted and is worth less than `below`, or `none`. In an exclusive layer,
// experts that the slots hold too go first, and among them the one that will stay in the slots longest. Otherwise
// the store would hold the same as the slots, and be of no use.
Slot HostLevel::least_worthy(Layer layer, double below) {
    Slot victim = none;
    bool is_double = false;  // the slots hold the victim too
    for (Slot slot = 0; slot < n_slot(layer); slot++) {
        const SlotInfo & info = residency_.at(layer, slot);
        if (info.state != SlotState::ready || users(layer, slot) > 0 || wanted(layer, info.expert)) {
            continue;
        }
        const double keep = worth(layer, info.expert);
        if (is_exclusive_[size_t(layer)] && in_slots(layer, info.expert)) {
            if (!is_double || keep > below) {
                victim = slot;
                below = keep;
                is_double = true;
            }
        } else if (!is_double && keep < below) {
            victim = slot;
            below = keep;
        }
    }
    return victim;
}

Slot HostLevel::find(Layer layer, Expert expert) const {
    const Slot slot = residency_.find(place(layer), expert);
    return slot != none && residency_.at(layer, slot).state == SlotState::ready ? slot : none;
}

void HostLevel::hold(Layer layer, Expert expert) {
    assert(find(layer, expert) != none);
    users(layer, residency_.find(place(layer), expert))++;
}

void HostLevel::let_go(Layer layer, Expert expert) { users(layer, residency_.find(place(layer), expert))--; }

}  // namespace outrider
