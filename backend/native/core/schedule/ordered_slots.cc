// Who gets a slot, and who leaves for it.
#include "ordered.h"

namespace outrider {

Slot OrderedScheduler::acquire_for_prefetch(Place place, Expert expert) {
    const Pool pool = residency_.pool(place);
    if (const Slot slot = residency_.free_slot(place, expert); slot != none || residency_.is_whole(place.layer)) {
        return slot;
    }
    const Slot victim = least_worthy(pool, place.layer);
    if (victim != none && is_buffer(pool) && n_ahead(residency_.at(pool, victim).layer) <= n_ahead(place.layer)) {
        return none;  // what waits in a buffer was fetched for somebody who comes first
    }
    if (victim != none) {
        const SlotInfo & info = residency_.at(pool, victim);
        if (reads_ahead() && info.part != Part::bottom) {
            displaced_[size_t(info.layer)].push_back(info.expert);
        }
        residency_.release(pool, victim);
    }
    return victim;
}

Slot OrderedScheduler::acquire_for_need(size_t position) {
    const Need & need = needs_[position];
    const Pool pool = pool_of(need);
    const Place place{layer_, need.part};
    if (const Slot slot = residency_.free_slot(place, need.expert); slot != none) {
        return slot;
    }
    if (residency_.is_whole(layer_)) {  // its slot failed once
        residency_.reclaim();
        return residency_.free_slot(place, need.expert);
    }
    want_open_needs(true);
    Slot victim = least_worthy(pool, layer_);
    want_open_needs(false);
    if (victim == none && strict()) {
        // In the router's order an expert may have to leave before its turn, and come back.
        for (size_t i = needs_.size(); i-- > position + 1 && victim == none;) {
            const Slot slot = slot_of(needs_[i]);
            if (slot != none && pool_of(needs_[i]) == pool && !needs_[i].issued &&
                residency_.at(pool, slot).state == SlotState::ready) {
                victim = slot;
                forget_fetch(needs_[i]);
            }
        }
    }
    if (victim == none) {
        // Rather a slot that failed once than none at all.
        residency_.reclaim();
        return residency_.free_slot(pool);
    }
    residency_.release(pool, victim);
    return victim;
}

void OrderedScheduler::want_open_needs(bool wanted_now) {
    for (const Need & n : needs_) {
        wanted(n.expert, n.part) = wanted_now && !n.computed;
    }
}

// Of the ready, unpinned parts in the pool that `layer` does not want, the one least worth keeping; or
// `none`.
Slot OrderedScheduler::least_worthy(Pool pool, Layer layer) {
    Slot victim = none;
    double lowest = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (info.state != SlotState::ready || info.pinned || (info.layer == layer && wanted(info.expert, info.part))) {
            continue;
        }
        if (is_buffer(pool) && is_open(info)) {
            continue;  // needed now, though a strict order has not pinned it yet
        }
        // In a buffer what was fetched in vain for a layer that is past leaves first: it is needed last.
        const double keep =
            is_buffer(pool) ? -double(n_ahead(info.layer)) : eviction_.keep(info.layer, info.part, info.expert);
        if (victim == none || keep < lowest) {
            victim = s;
            lowest = keep;
        }
    }
    return victim;
}

}  // namespace outrider
