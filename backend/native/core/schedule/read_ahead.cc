#include "core/schedule/read_ahead.h"

#include <algorithm>
#include <utility>

namespace outrider {

ReadAhead::ReadAhead(const OrderedPart & part, Victims & victims)
    : OrderedPart(part),
      victims_(victims),
      expected_(size_t(n_layer())),
      prefetched_(size_t(n_layer())),
      displaced_(size_t(n_layer())) {}

void ReadAhead::expect(const Forecast & forecast, Commands & out) {
    if (may_stream() && forecast.layer > routed_) {
        expected_[size_t(forecast.layer)] = {forecast.experts};
        run(out);
    } else {
        fetch(forecast, out);
    }
}

void ReadAhead::fetch(const Forecast & forecast, Commands & out) {
    if (needs_.streams() && residency_.pool({forecast.layer, Part::staged}) != none) {
        return;  // its needs come through the stage, and would displace other needs of the layer here
    }
    // So probable a read is seldom interrupted, and costs less in one.
    constexpr double whole_from = 0.8;
    const Urgency urgency = forecast.spare ? Urgency::spare : forecast.certain && !many_ ? Urgency::high : Urgency::low;
    victims_.want(forecast.experts, true);
    bool room = true;
    for (size_t i = 0; i < forecast.experts.size() && room; i++) {
        for (Part part : parts) {
            const Place place{forecast.layer, part};
            const Expert e = forecast.experts[i];
            if (residency_.pool(place) == none) {
                continue;
            }
            if (const Slot slot = residency_.find(place, e); slot != none) {
                complete(place, slot, out, urgency);
            } else if (const Slot taken = residency_.displaced(place, e); taken != none) {
                // It is still there if the copies into its slot have not begun.
                const SlotInfo & other = residency_.at(residency_.pool(place), taken);
                desk_.call_back({other.layer, other.part}, taken, out);
            } else if (room && lacks(place, e)) {
                room = claim(place, e);
                if (room) {
                    order_claimed(place, e, urgency, out, forecast.spare && double(forecast.scores[i]) >= whole_from);
                }
            }
        }
    }
    victims_.want(forecast.experts, false);
}

// Whether there is such a part, and it is neither resident nor in flight.
bool ReadAhead::lacks(Place place, Expert expert) const {
    return residency_.pool(place) != none && residency_.find(place, expert) == none &&
           residency_.find({place.layer, Part::staged}, expert) == none;
}

// Gives the part a slot, from which it may be ordered. False when none is to be had.
bool ReadAhead::claim(Place place, Expert expert) {
    const Pool pool = residency_.pool(place);
    Slot slot = residency_.free_slot(place, expert);
    if (slot == none && !residency_.is_whole(place.layer)) {
        slot = victims_.find(pool, place.layer);
        if (slot == none) {
            return false;
        }
        const SlotInfo & info = residency_.at(pool, slot);
        if (is_buffer(pool) && victims_.n_ahead(info.layer) <= victims_.n_ahead(place.layer)) {
            return false;  // experts in a buffer were fetched for a nearer layer
        }
        if (info.part != Part::bottom) {
            displaced_[size_t(info.layer)].push_back(info.expert);
        }
        if (info.state == SlotState::ready) {
            residency_.displace(pool, slot);
        } else {
            residency_.release(pool, slot);
        }
    }
    if (slot != none) {
        residency_.assign(place, slot, expert, true);
    }
    return slot != none;
}

void ReadAhead::order_claimed(Place place, Expert expert, Urgency urgency, Commands & out, bool whole) {
    const Slot slot = residency_.find(place, expert);
    whole ? desk_.order(residency_.pool(place), slot, urgency, false, out) : order(place, slot, urgency, out);
    prefetched_[size_t(place.layer)].push_back(expert);
}

// The nearest layer first. A copy that cannot begin before the gate is cancelled there, and its slot was emptied in
// vain: so no more than most_open_ copies are in flight.
void ReadAhead::run(Commands & out) {
    if (!may_stream() || needs_.any_without_slot()) {
        return;
    }
    for (Layer layer = routed_ + 1; layer < n_layer(); layer++) {
        if (!expected_[size_t(layer)].experts.empty() && !run_layer(layer, out)) {
            return;
        }
    }
}

// Orders the most probable experts, as many as may be in flight, in the order of the file. True when all are ordered.
bool ReadAhead::run_layer(Layer layer, Commands & out) {
    constexpr double most_regret = 0.65;
    Expected & expected = expected_[size_t(layer)];
    const auto n_chunk = size_t(options_.chunks ? residency_.n_chunk(layer) : 1);
    const bool has_stage = residency_.pool({layer, Part::staged}) != none;
    const size_t n_low = desk_.n_low(none);
    const size_t n_most = n_low < most_open_ ? (most_open_ - n_low) / n_chunk : 0;
    victims_.want(expected.experts, true);
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
        // Through the stage where there is one: the layer's own slots are for the experts that it keeps.
        const bool staged = has_stage && residency_.free_slot({layer, Part::top}, e) == none;
        if (staged && residency_.free_slot(residency_.pool({layer, Part::staged})) == none) {
            break;  // until an expert of the stage was computed
        }
        for (Part part : parts) {
            const Place place{layer, staged ? Part::staged : part};
            const bool free = residency_.pool(place) != none && residency_.free_slot(place, e) != none;
            if (lacks({layer, part}, e) && (free || regret_ < most_regret) && claim(place, e)) {
                next.push_back({e, place.part});
            }
        }
    }
    victims_.want(expected.experts, false);
    std::sort(next.begin(), next.end());
    for (const auto & [e, part] : next) {
        order_claimed({layer, part}, e, Urgency::low, out);
    }
    return expected.n_read == expected.experts.size();
}

void ReadAhead::gate(Layer layer) {
    routed_ = layer;
    disappoint(layer);
    judge(layer);
}

// Tells the eviction which fetches for this layer were in vain.
void ReadAhead::disappoint(Layer layer) {
    for (Expert e : prefetched_[size_t(layer)]) {
        for (Part part : parts) {
            const Place place{layer, part};
            const Pool pool = residency_.pool(place);
            const Slot slot = pool == none ? none : residency_.find(place, e);
            if (slot != none && residency_.at(pool, slot).prefetched && !residency_.at(pool, slot).used) {
                eviction_.disappointed(layer, e);
                break;
            }
        }
    }
    prefetched_[size_t(layer)].clear();
}

// Adapts the number of copies in flight to the number that arrived before the gate, and notes whether displaced
// experts are needed.
void ReadAhead::judge(Layer layer) {
    constexpr size_t few = 8;  // copies that have begun, or are about to
    constexpr double weight = 1.0 / 16, token_weight = 1.0 / 64, forgotten = 1.0 / 256;
    expected_[size_t(layer)] = {};
    const std::vector<Expert> displaced = std::exchange(displaced_[size_t(layer)], {});
    const auto needed = [&](Expert e) {
        return std::any_of(needs_.begin(), needs_.end(), [&](const Need & n) { return n.expert == e; }) ? 1.0 : 0.0;
    };
    if (!may_stream()) {
        for (Expert e : displaced) {
            if (lacks({layer, Part::top}, e)) {  // no copy brought it back
                token_regret_ += token_weight * (needed(e) - token_regret_);
            }
        }
        return;
    }
    regret_ -= forgotten * regret_;  // so that displacing is tried again
    for (Expert e : displaced) {
        regret_ += weight * (needed(e) - regret_);
    }
    if (n_open_ > few) {
        most_open_ = std::max(most_open_, n_open_) - n_open_ + few;
    } else if (held_back_) {
        most_open_ += most_open_ / 2;
    }
    held_back_ = false;
}

}  // namespace outrider
