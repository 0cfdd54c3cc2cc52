// What a prompt reads of the layers that come next, from forecasts, while their routers have not chosen.
#include <algorithm>
#include <utility>

#include "ordered.h"

namespace outrider {

// Whether a needed part was not even ordered: what is only expected waits for it.
bool OrderedScheduler::needs_wait() const {
    return n_open_ > 0 && std::any_of(needs_.begin(), needs_.end(),
                                      [&](const Need & n) { return !n.computed && !n.on_host && slot_of(n) == none; });
}

// The nearest layer first. No more than most_ahead_ copies are under way: what cannot begin before the gate is
// called back there, and then a slot was emptied for nothing.
void OrderedScheduler::read_ahead(Commands & out) {
    if (!reads_ahead() || needs_wait()) {
        return;
    }
    for (Layer layer = routed_ + 1; layer < Layer(expected_.size()); layer++) {
        if (!expected_[size_t(layer)].experts.empty() && !read_layer_ahead(layer, out)) {
            return;
        }
    }
}

// Those that are most probable, as many as may be under way, in the order of the file. False when these are all.
bool OrderedScheduler::read_layer_ahead(Layer layer, Commands & out) {
    Expected & expected = expected_[size_t(layer)];
    const auto n_chunk = size_t(options_.chunks ? residency_.n_chunk(layer) : 1);
    const bool has_stage = residency_.pool({layer, Part::staged}) != none;
    const size_t n_low = desk_.n_low(none);
    const size_t n_most = n_low < most_ahead_ ? (most_ahead_ - n_low) / n_chunk : 0;
    constexpr double most_regret = 0.65;
    for (Expert e : expected.experts) {
        wanted(e, Part::top) = wanted(e, Part::bottom) = 1;
    }
    std::vector<std::pair<Expert, Part>> next;
    for (; expected.n_read < expected.experts.size(); expected.n_read++) {
        const Expert e = expected.experts[expected.n_read];
        if (!lacks({layer, Part::top}, e) && !lacks({layer, Part::bottom}, e)) {
            continue;
        }
        if (next.size() >= n_most) {
            held_back_ = true;
            break;
        }
        // Through the stage, where there is one: the layer's own slots are for what it keeps.
        const bool staged = has_stage && residency_.free_slot({layer, Part::top}, e) == none;
        if (staged && residency_.free_slot(residency_.pool({layer, Part::staged})) == none) {
            break;  // until one was computed
        }
        for (Part part : parts) {
            const Place place{layer, staged ? Part::staged : part};
            const bool free = residency_.pool(place) != none && residency_.free_slot(place, e) != none;
            if (lacks({layer, part}, e) && (free || regret_ < most_regret) && claim_ahead(place, e)) {
                next.push_back({e, place.part});
            }
        }
    }
    for (Expert e : expected.experts) {
        wanted(e, Part::top) = wanted(e, Part::bottom) = 0;
    }
    std::sort(next.begin(), next.end());
    for (const auto & [e, part] : next) {
        order_ahead({layer, part}, e, out);
    }
    return expected.n_read == expected.experts.size();
}

// At a layer's gate: whether the link brought what was ordered ahead of it. A few copies have begun, or are as good
// as begun.
void OrderedScheduler::judge_ahead(Layer layer) {
    constexpr size_t few = 8;
    constexpr double weight = 1.0 / 16, forgotten = 1.0 / 256;
    expected_[size_t(layer)] = {};
    std::vector<Expert> displaced = std::exchange(displaced_[size_t(layer)], {});
    if (!reads_ahead()) {
        return;
    }
    regret_ -= forgotten * regret_;  // so that it is tried again
    for (Expert e : displaced) {
        const bool needed = std::any_of(needs_.begin(), needs_.end(), [&](const Need & n) { return n.expert == e; });
        regret_ += weight * ((needed ? 1.0 : 0.0) - regret_);
    }
    if (const size_t n_open = desk_.n_low(layer); n_open > few) {
        most_ahead_ = std::max(most_ahead_, n_open) - n_open + few;
    } else if (held_back_) {
        most_ahead_ += most_ahead_ / 2;
    }
    held_back_ = false;
}

}  // namespace outrider
