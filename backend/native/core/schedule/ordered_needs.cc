// What a layer needs: how it was found, in which order it is computed, whether it streams.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "ordered.h"

namespace outrider {

namespace {

// Whose slots an expert would have, were it not in the stage.
Part own(Part part) { return part == Part::staged ? Part::top : part; }

}  // namespace

void OrderedScheduler::count(const Need & need) {
    LayerCounts & counts = residency_.counts(layer_);
    const Slot slot = slot_of(need);
    if (slot == none) {
        counts.misses++;
        return;
    }
    const Pool pool = pool_of(need);
    (residency_.at(pool, slot).state == SlotState::ready ? counts.hits : counts.late)++;
    residency_.mark_used(pool, slot);
    if (!strict()) {
        residency_.set_pinned(pool, slot, true);
    }
}

// A bottom never comes before its top: the sorts are stable, and equals are as the router named them.
void OrderedScheduler::sort_needs() {
    if (strict()) {
        return;
    }
    const auto arrived = [&](const Need & need) {
        const Slot slot = slot_of(need);
        return slot == none ? 0 : std::popcount(residency_.at(pool_of(need), slot).arrived);
    };
    for (size_t i = 0; i < needs_.size(); i++) {
        const bool bottom_of_last = needs_[i].part == Part::bottom && i > 0 && needs_[i - 1].expert == needs_[i].expert;
        needs_[i].n_arrived = arrived(needs_[i]);
        if (bottom_of_last) {
            needs_[i].n_arrived = std::min(needs_[i].n_arrived, needs_[i - 1].n_arrived);
        }
    }
    if (phase_ == Phase::prefill && options_.order == ComputeOrder::arrived) {
        rank_needs();
    }
    const auto before = [&](const Need & a, const Need & b) {
        if (options_.order == ComputeOrder::tokens && a.n_token != b.n_token) {
            return a.n_token > b.n_token;
        }
        return a.n_arrived != b.n_arrived ? a.n_arrived > b.n_arrived : a.rank < b.rank;
    };
    if (needs_.size() > 32) {
        std::stable_sort(needs_.begin(), needs_.end(), before);
        return;
    }
    for (size_t i = 1; i < needs_.size(); i++) {  // one token's: no memory is asked for
        for (size_t j = i; j > 0 && before(needs_[j], needs_[j - 1]); j--) {
            std::swap(needs_[j], needs_[j - 1]);
        }
    }
}

// What is missing is read in the order of the file, as far as that is free. A layer that streams ends
// with those most worth keeping, since the last ones read stay; and of the resident ones the least
// worthy are computed first, since others take their slots.
void OrderedScheduler::rank_needs() {
    std::vector<double> worths;
    for (const Need & need : needs_) {
        worths.push_back(streams_ ? eviction_.keep(layer_, need.part, need.expert) : 0);
    }
    std::array<double, 2> worthy{};  // [part]: as much as this
    for (Part part : parts) {
        std::vector<double> of_part;
        for (size_t i = 0; i < needs_.size(); i++) {
            if (own(needs_[i].part) == part) {
                of_part.push_back(worths[i]);
            }
        }
        const size_t n_slot = of_part.empty() ? 0 : size_t(residency_.n_slot(residency_.pool({layer_, part})));
        if (n_slot < of_part.size()) {
            std::nth_element(of_part.begin(), of_part.begin() + int64_t(n_slot), of_part.end(), std::greater<>());
            worthy[size_t(part)] = of_part[n_slot];
        }
    }
    for (size_t i = 0; i < needs_.size(); i++) {
        Need & need = needs_[i];
        need.stays = streams_ && worths[i] > worthy[size_t(own(need.part))];
        need.rank = need.n_arrived > 0 ? worths[i] : need.expert + (need.stays ? residency_.n_expert() : 0);
        if (need.part == Part::bottom && i > 0 && needs_[i - 1].expert == need.expert &&
            (needs_[i - 1].n_arrived > 0) == (need.n_arrived > 0)) {
            need.rank = std::max(need.rank, needs_[i - 1].rank);
        }
    }
}

bool OrderedScheduler::layer_streams() const {
    return std::any_of(parts.begin(), parts.end(), [&](Part part) {
        const Pool pool = residency_.pool({layer_, part});
        return pool != none && must_stream(pool);
    });
}

// Whether more parts are missing than find room beside the needed ones that are here.
bool OrderedScheduler::must_stream(Pool pool) const {
    int32_t n_room = 0;
    for (Slot s = 0; s < residency_.n_slot(pool); s++) {
        const SlotInfo & info = residency_.at(pool, s);
        n_room += info.state == SlotState::free || (info.state == SlotState::ready && !info.pinned);
    }
    for (const Need & need : needs_) {
        n_room -= pool_of(need) == pool && slot_of(need) == none && !need.on_host;
    }
    return n_room < 0;
}

// How many missing parts may have slots, not computed, at the same time.
size_t OrderedScheduler::max_open() const {
    const int32_t n = streams_ && (options_.max_open == 0 || options_.n_stream < options_.max_open) ? options_.n_stream
                                                                                                    : options_.max_open;
    return n > 0 ? size_t(n) : needs_.size();
}

}  // namespace outrider
