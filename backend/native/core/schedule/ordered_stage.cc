// The stage of a prompt: what passes through it, and the layers that come next; and layers that keep all.
#include <algorithm>
#include <functional>

#include "ordered.h"

namespace outrider {

// Whether a missing expert passes through the stage: the layer's own slots are for what it keeps.
bool OrderedScheduler::passes_through(const Need & need) const {
    return streams_ && stage() != none && need.part == Part::top && !need.stays &&
           residency_.free_slot({layer_, Part::top}, need.expert) == none;
}

// What was staged in vain, for this layer or one before it, gives way.
void OrderedScheduler::sweep_stage() {
    const Pool pool = stage();
    for (Slot s = 0; pool != none && s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        if (info.state == SlotState::ready && info.layer <= layer_ && !is_open(info)) {
            residency_.release(pool, s);
        }
    }
}

// A free slot of the stage, or one that waits for the layer that comes last.
Slot OrderedScheduler::acquire_in_stage() {
    const Pool pool = stage();
    if (const Slot slot = residency_.free_slot(pool); slot != none) {
        return slot;
    }
    const Slot victim = least_worthy(pool, layer_);
    if (victim != none) {
        residency_.release(pool, victim);
    }
    return victim;
}

// When all that this layer needs is here or on its way: the next layers', as far as there is room.
void OrderedScheduler::stage_ahead(Commands & out) {
    if (4 * needs_.size() < 3 * size_t(residency_.n_expert()) ||
        std::any_of(needs_.begin(), needs_.end(),
                    [&](const Need & n) { return !n.computed && !n.on_host && slot_of(n) == none; })) {
        return;
    }
    const auto n_layer = int32_t(residency_.layout().layers.size());
    if (ahead_ <= layer_) {
        ahead_ = layer_ + 1;
        ahead_from_ = 0;
        ahead_stays_.clear();
    }
    for (; ahead_ < n_layer && stage_layer(ahead_, out); ahead_++) {
        ahead_from_ = 0;
        ahead_stays_.clear();
    }
}

// True when all of its experts are here or on their way, but those for which it will make room itself.
bool OrderedScheduler::stage_layer(Layer layer, Commands & out) {
    const Place staged{layer, Part::staged};
    const Place own{layer, Part::top};
    if (residency_.pool(staged) == none) {
        return true;
    }
    if (ahead_stays_.empty()) {
        ahead_stays_ = worth_own_slots(layer);
    }
    for (Expert & e = ahead_from_; e < residency_.n_expert(); e++) {
        if (residency_.find(own, e) != none || residency_.find(staged, e) != none) {
            continue;
        }
        Place place = own;
        Slot slot = residency_.free_slot(own, e);
        if (slot == none) {
            if (ahead_stays_[size_t(e)]) {
                continue;
            }
            place = staged;
            slot = residency_.free_slot(residency_.pool(staged));
        }
        if (slot == none) {
            return false;
        }
        residency_.assign(place, slot, e, true);
        desk_.order(residency_.pool(place), slot, Urgency::low, options_.chunks, out);
    }
    return true;
}

// [expert]: whether it is among those that are most worth keeping, as many as the layer has slots.
std::vector<uint8_t> OrderedScheduler::worth_own_slots(Layer layer) const {
    std::vector<double> worths;
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        worths.push_back(eviction_.keep(layer, Part::top, e));
    }
    const auto n_slot = int64_t(residency_.n_slot(residency_.pool({layer, Part::top})));
    std::vector<double> sorted = worths;
    std::nth_element(sorted.begin(), sorted.begin() + n_slot, sorted.end(), std::greater<>());
    std::vector<uint8_t> worth;
    for (double w : worths) {
        worth.push_back(w > sorted[size_t(n_slot)]);
    }
    return worth;
}

// While a layer streams through the stage, several experts are computed together, so that little time is
// lost between them; copies go on meanwhile.
void OrderedScheduler::issue_batch(Commands & out) {
    size_t n_ready = 0;
    size_t n_coming = 0;
    for (const Need & need : needs_) {
        if (!need.issued) {
            (can_compute(need) ? n_ready : n_coming) += slot_of(need) != none;
        }
    }
    const auto n_wave = size_t(std::max(options_.n_wave, 1));
    const size_t enough = std::min(size_t(residency_.n_slot(stage())), needs_.size()) / n_wave;
    if (n_coming > 0 && n_ready < enough) {
        return;
    }
    for (Need & need : needs_) {
        if (!need.issued && can_compute(need)) {
            issue(need, out);
        }
    }
}

// A layer with a slot for every expert: it gets all of them, so that it need not be asked any more.
void OrderedScheduler::fill(Commands & out) {
    const Place place{layer_, Part::top};
    for (Expert e = 0; e < residency_.n_expert(); e++) {
        if (residency_.find(place, e) != none) {
            continue;
        }
        if (const Slot slot = residency_.free_slot(place, e); slot != none) {
            residency_.assign(place, slot, e, true);
            desk_.order(residency_.pool(place), slot, Urgency::low, options_.chunks, out);
        }
    }
}

}  // namespace outrider
