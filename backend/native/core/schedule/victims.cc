#include "core/schedule/victims.h"

namespace outrider {

void Victims::want(std::span<const Expert> experts, bool wanted) {
    for (Expert e : experts) {
        wanted_[index(e, Part::top)] = wanted_[index(e, Part::bottom)] = wanted;
    }
}

Slot Victims::find_beside_needs(Pool pool) {
    for (const Need & n : needs_) {
        wanted_[index(n.expert, n.part)] = !n.computed;
    }
    const Slot victim = find(pool, needs_.layer());
    for (const Need & n : needs_) {
        wanted_[index(n.expert, n.part)] = 0;
    }
    return victim;
}

Slot Victims::find(Pool pool, Layer layer) const {
    Slot victim = none;
    double lowest = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (!info.may_leave() || (info.layer == layer && wanted_[index(info.expert, info.part)])) {
            continue;
        }
        if (is_buffer(pool) && needs_.is_open(info)) {
            continue;  // needed now; a strict order has not pinned it yet
        }
        // In a buffer, experts fetched in vain for a past layer leave first: they are needed last.
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
