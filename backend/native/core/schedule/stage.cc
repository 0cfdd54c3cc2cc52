#include "core/schedule/stage.h"

#include <algorithm>
#include <functional>

namespace outrider {

void Stage::sweep() {
    for (Slot s = 0; pool() != none && s < residency_.n_slot(pool()); s++) {
        const SlotInfo & info = residency_.at(pool(), s);
        if (info.may_leave() && info.layer <= needs_.layer() && !needs_.is_open(info)) {
            residency_.release(pool(), s);
        }
    }
}

bool Stage::takes(const Need & need) const {
    return pool() != none && need.part == Part::top && !need.stays &&
           residency_.free_slot({needs_.layer(), Part::top}, need.expert) == none;
}

Slot Stage::acquire() {
    if (const Slot slot = residency_.free_slot(pool()); slot != none) {
        return slot;
    }
    const Slot victim = victims_.find(pool(), needs_.layer());
    if (victim != none) {
        residency_.release(pool(), victim);
    }
    return victim;
}

void Stage::note_choice() {
    needed_few_.resize(size_t(n_layer()), false);
    needed_few_[size_t(needs_.layer())] = !needs_most();
}

void Stage::order_ahead(Commands & out) {
    if (!needs_most() || needs_.any_without_slot()) {
        return;
    }
    if (next_ <= needs_.layer()) {
        begin_layer(needs_.layer() + 1);
    }
    while (next_ < n_layer() && order_layer(out)) {
        begin_layer(next_ + 1);
    }
}

void Stage::begin_layer(Layer layer) {
    next_ = layer;
    next_expert_ = 0;
    stays_.clear();
    if (layer >= n_layer() || residency_.pool({layer, Part::staged}) == none) {
        return;
    }
    std::vector<double> worths;
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        worths.push_back(eviction_.keep(layer, Part::top, e));
    }
    const auto n_slot = int64_t(residency_.n_slot(residency_.pool({layer, Part::top})));
    std::vector<double> sorted = worths;
    std::nth_element(sorted.begin(), sorted.begin() + n_slot, sorted.end(), std::greater<>());
    for (double w : worths) {
        stays_.push_back(w > sorted[size_t(n_slot)]);
    }
}

// True when all experts of the layer are resident or in flight, but those for which it will make room itself.
bool Stage::order_layer(Commands & out) {
    const Place staged{next_, Part::staged};
    const Place own{next_, Part::top};
    if (residency_.pool(staged) == none || needed_few_[size_t(next_)]) {
        return true;
    }
    for (Expert & e = next_expert_; e < residency_.n_expert(); e++) {
        if (residency_.find(own, e) != none || residency_.find(staged, e) != none) {
            continue;
        }
        const bool is_own = residency_.free_slot(own, e) != none;
        if (!is_own && stays_[size_t(e)]) {
            continue;
        }
        const Place place = is_own ? own : staged;
        const Slot slot = residency_.free_slot(place, e);
        if (slot == none) {
            return false;
        }
        residency_.assign(place, slot, e, true);
        order(place, slot, Urgency::low, out);
    }
    return true;
}

}  // namespace outrider
