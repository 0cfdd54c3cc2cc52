// INVARIANT: a needed expert that is not computed is either without a slot (and waits in serve()),
// or ready, or in a pending slot all of whose missing chunks are flying, or in one that is broken
// and waits for its last flight.
// With `reorder` its slot is pinned from the moment it has one; without, from its Compute on, since
// an expert further down the router's order may have to give way to the first one.
#include "ordered.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace outrider {

OrderedScheduler::OrderedScheduler(Residency & residency, Eviction & eviction, OrderedOptions options)
    : residency_(residency), eviction_(eviction), options_(options) {}

void OrderedScheduler::pass_began(Phase phase) {
    assert(idle());
    eviction_.pass_began(phase);
    residency_.reclaim();
}

void OrderedScheduler::push_predicted(Layer layer, std::span<const Expert> experts, Commands & out) {
    for (Expert e : experts) {
        if (const Slot slot = residency_.find(layer, e); slot != none) {
            eviction_.touched(layer, slot, e);
        }
    }
    for (Expert e : experts) {
        if (residency_.find(layer, e) != none) {
            continue;
        }
        const Slot slot = acquire_for_prefetch(layer, experts);
        if (slot == none) {
            return;
        }
        residency_.assign(layer, slot, e, true);
        eviction_.touched(layer, slot, e);
        issue_copies(layer, slot, Urgency::low, out);
    }
}

void OrderedScheduler::push_precise(Layer layer, std::span<const Expert> experts, Commands & out) {
    assert(idle());
    layer_ = layer;
    needs_.clear();
    for (Expert e : experts) {
        needs_.push_back({e});
    }
    n_open_ = needs_.size();

    LayerCounts & counts = residency_.counts(layer);
    for (const Need & need : needs_) {
        const Slot slot = residency_.find(layer, need.expert);
        if (slot == none) {
            counts.misses++;
            continue;
        }
        (residency_.at(layer, slot).state == SlotState::ready ? counts.hits : counts.late)++;
        residency_.mark_used(layer, slot);
        eviction_.touched(layer, slot, need.expert);
        if (options_.reorder) {
            residency_.set_pinned(layer, slot, true);
        }
    }
    for (Slot s = 0; s < residency_.n_slot(layer); s++) {
        const SlotInfo & info = residency_.at(layer, s);
        if (info.prefetched && !info.used) {
            eviction_.disappointed(layer, s);
        }
    }
    if (options_.reorder) {
        const auto n_arrived = [&](const Need & need) {
            const Slot slot = residency_.find(layer, need.expert);
            return slot == none ? 0 : std::popcount(residency_.at(layer, slot).arrived);
        };
        std::stable_sort(needs_.begin(), needs_.end(),
                         [&](const Need & a, const Need & b) { return n_arrived(a) > n_arrived(b); });
    }
    Order order{layer, {}};
    for (const Need & need : needs_) {
        order.experts.push_back(need.expert);
    }
    out.push_back(std::move(order));

    if (options_.early_preemption) {
        drop_predicted(layer, none, out);
    }
    serve(out);
}

void OrderedScheduler::copied(Ticket ticket, Commands & out) {
    const auto it = flights_.find(ticket);
    assert(it != flights_.end());
    const Flight flight = it->second;
    flights_.erase(it);
    residency_.chunks_arrived(flight.layer, flight.slot, flight.mask);
    settle(flight.layer, flight.slot, out);
}

void OrderedScheduler::cancelled(Ticket ticket, Commands & out) {
    const auto it = flights_.find(ticket);
    assert(it != flights_.end());
    const Flight flight = it->second;
    flights_.erase(it);
    residency_.chunks_cancelled(flight.layer, flight.slot, flight.mask);
    const SlotInfo & info = residency_.at(flight.layer, flight.slot);
    if (!info.broken && is_open(flight.layer, info.expert)) {
        issue_copies(flight.layer, flight.slot, Urgency::high, out);
        return;
    }
    settle(flight.layer, flight.slot, out);
}

void OrderedScheduler::failed(Ticket ticket, Commands & out) {
    const auto it = flights_.find(ticket);
    assert(it != flights_.end());
    const Flight flight = it->second;
    flights_.erase(it);
    residency_.chunks_failed(flight.layer, flight.slot, flight.mask);
    settle(flight.layer, flight.slot, out);
}

void OrderedScheduler::computed(Layer layer, Expert expert, Commands & out) {
    Need * need = find_need(layer, expert);
    assert(need && need->issued && !need->computed);
    need->computed = true;
    n_open_--;
    residency_.set_pinned(layer, residency_.find(layer, expert), false);
    serve(out);
}

void OrderedScheduler::aborted(Commands & out) {
    const Layer layer = layer_;
    needs_.clear();
    n_open_ = 0;
    layer_ = none;
    if (layer == none) {
        return;
    }
    for (const auto & [ticket, flight] : flights_) {
        if (flight.layer == layer) {
            out.push_back(Cancel{ticket});
        }
    }
    for (Slot s = 0; s < residency_.n_slot(layer); s++) {
        if (residency_.at(layer, s).pinned) {
            residency_.set_pinned(layer, s, false);
        }
        settle(layer, s, out);
    }
}

void OrderedScheduler::issue_copies(Layer layer, Slot slot, Urgency urgency, Commands & out) {
    const uint32_t missing = residency_.take_missing_chunks(layer, slot);
    const Expert expert = residency_.at(layer, slot).expert;
    const auto issue = [&](uint32_t mask, Chunk chunk) {
        const Ticket ticket = next_ticket_++;
        flights_.emplace(ticket, Flight{layer, slot, mask, urgency});
        out.push_back(Copy{ticket, layer, expert, chunk, slot, urgency});
    };
    if (!options_.chunks && missing == residency_.all_chunks(layer)) {
        issue(missing, whole_expert);
        return;
    }
    for (Chunk c = 0; c < residency_.n_chunk(layer); c++) {
        if (missing & (1u << c)) {
            issue(1u << c, c);
        }
    }
}

// What was predicted for this layer, or one slot of it, and has not begun need not begin. Needed
// copies come back through cancelled(), as high ones.
void OrderedScheduler::drop_predicted(Layer layer, Slot slot, Commands & out) {
    for (const auto & [ticket, flight] : flights_) {
        if (flight.layer == layer && flight.urgency == Urgency::low && (slot == none || flight.slot == slot)) {
            out.push_back(Cancel{ticket});
        }
    }
}

Slot OrderedScheduler::acquire_for_prefetch(Layer layer, std::span<const Expert> wanted) {
    if (const Slot slot = residency_.free_slot(layer); slot != none) {
        return slot;
    }
    const Slot victim = least_worthy(layer, wanted);
    if (victim != none) {
        residency_.release(layer, victim);
    }
    return victim;
}

Slot OrderedScheduler::acquire_for_need(size_t position) {
    if (const Slot slot = residency_.free_slot(layer_); slot != none) {
        return slot;
    }
    std::vector<Expert> wanted;
    for (const Need & need : needs_) {
        if (!need.computed) {
            wanted.push_back(need.expert);
        }
    }
    Slot victim = least_worthy(layer_, wanted);
    if (victim == none && !options_.reorder) {
        // In the router's order an expert may have to leave before its turn, and come back.
        for (size_t i = needs_.size(); i-- > position + 1 && victim == none;) {
            const Slot slot = residency_.find(layer_, needs_[i].expert);
            if (slot != none && residency_.at(layer_, slot).state == SlotState::ready && !needs_[i].issued) {
                victim = slot;
            }
        }
    }
    if (victim == none) {
        // Rather a slot that failed once than none at all.
        residency_.reclaim();
        return residency_.free_slot(layer_);
    }
    residency_.release(layer_, victim);
    return victim;
}

// Of the ready, unpinned experts that are not wanted, the one least worth keeping; or `none`.
Slot OrderedScheduler::least_worthy(Layer layer, std::span<const Expert> wanted) const {
    Slot victim = none;
    double lowest = 0;
    for (Slot s = 0; s < residency_.n_slot(layer); s++) {
        const SlotInfo & info = residency_.at(layer, s);
        if (info.state != SlotState::ready || info.pinned ||
            std::find(wanted.begin(), wanted.end(), info.expert) != wanted.end()) {
            continue;
        }
        const double keep = eviction_.keep(layer, s);
        if (victim == none || keep < lowest) {
            victim = s;
            lowest = keep;
        }
    }
    return victim;
}

// After a copy of this slot has ended in whatever way: decide what becomes of the slot.
void OrderedScheduler::settle(Layer layer, Slot slot, Commands & out) {
    const SlotInfo & info = residency_.at(layer, slot);
    if (info.state == SlotState::pending && info.flying == 0) {
        const bool open = is_open(layer, info.expert);
        if (info.broken) {
            Need * need = open ? find_need(layer, info.expert) : nullptr;
            if (info.pinned) {
                residency_.set_pinned(layer, slot, false);
            }
            const Expert expert = info.expert;
            residency_.release(layer, slot);
            if (need && ++need->attempts >= max_attempts) {
                out.push_back(GiveUp{layer, expert});
                return;
            }
        } else if (!open) {
            residency_.release(layer, slot);  // dropped halfway: a part is of no use
        }
    }
    if (layer == layer_) {
        serve(out);
    }
}

// Gives slots to needed experts without one, in order, and says what can be computed.
void OrderedScheduler::serve(Commands & out) {
    bool slots_left = true;
    bool all_issued = true;    // of those before
    bool all_computed = true;  // of those before
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        if (need.issued) {
            all_computed = all_computed && need.computed;
            continue;
        }
        const bool may_fetch = options_.early_preemption || all_computed;
        Slot slot = residency_.find(layer_, need.expert);
        if (slot == none && slots_left && may_fetch && need.attempts < max_attempts) {
            slot = acquire_for_need(i);
            slots_left = slot != none;
            if (slot != none) {
                residency_.assign(layer_, slot, need.expert, false);
                residency_.mark_used(layer_, slot);
                eviction_.touched(layer_, slot, need.expert);
                if (options_.reorder) {
                    residency_.set_pinned(layer_, slot, true);
                }
            }
        } else if (slot != none && may_fetch && !options_.early_preemption && !need.promoted) {
            need.promoted = true;
            drop_predicted(layer_, slot, out);
        }
        if (slot != none && residency_.at(layer_, slot).state == SlotState::pending &&
            !residency_.at(layer_, slot).broken) {
            // All of a new one; of one whose copies were called back in an earlier pass, what is
            // not on its way: at once, for half an expert would keep its slot for ever.
            issue_copies(layer_, slot, Urgency::high, out);
        }
        const bool ready = slot != none && residency_.at(layer_, slot).state == SlotState::ready;
        if (ready && (options_.reorder || all_issued)) {
            residency_.set_pinned(layer_, slot, true);
            need.issued = true;
            out.push_back(Compute{layer_, need.expert, slot});
        } else {
            all_issued = false;
        }
        all_computed = false;
    }
}

OrderedScheduler::Need * OrderedScheduler::find_need(Layer layer, Expert expert) {
    if (layer != layer_) {
        return nullptr;
    }
    const auto it = std::find_if(needs_.begin(), needs_.end(), [&](const Need & n) { return n.expert == expert; });
    return it == needs_.end() ? nullptr : &*it;
}

bool OrderedScheduler::is_open(Layer layer, Expert expert) {
    const Need * need = find_need(layer, expert);
    return need && !need->computed;
}

}  // namespace outrider
