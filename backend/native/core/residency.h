// The slots of every pool: their states, their experts, and the copies in flight into them.
#pragma once

#include "core/layout.h"

namespace outrider {

// Aborts the process and prints the contradiction.
[[noreturn]] void broken_invariant(const char * what);
inline void require(bool condition, const char * what) {
    if (!condition) {
        broken_invariant(what);
    }
}

struct SlotInfo {
    SlotState state = SlotState::free;
    Layer layer = none;        // it holds or awaits this part
    Part part = Part::top;
    Expert expert = none;
    uint32_t arrived = 0;      // bit per chunk that has been copied
    uint32_t flying = 0;       // bit per chunk in flight
    bool pinned = false;       // the layer in progress needs it: it may not leave
    bool broken = false;       // a copy failed; quarantined as soon as nothing is flying
    bool prefetched = false;   // ordered by a forecast
    bool used = false;         // computed, or found at routing time, since it was ordered
    uint64_t bytes = 0;        // copied into it since it was ordered

    // Whether it holds something that may leave: a part, or chunks of one whose other copies were cancelled.
    bool may_leave() const {
        return !pinned && (state == SlotState::ready || (state == SlotState::pending && flying == 0 && !broken));
    }
};

// Counters since the start. bytes_read = bytes_useful + bytes_wasted + bytes that are resident and unused. Each part
// of a cut expert counts.
struct LayerCounts {
    uint64_t hits = 0;
    uint64_t late = 0;
    uint64_t misses = 0;
    uint64_t on_host = 0;            // late or missed, and computed by the host
    uint64_t host_rows = 0;          // rows of tokens of these
    uint64_t bytes_read = 0;
    uint64_t bytes_useful = 0;
    uint64_t bytes_wasted = 0;
    uint64_t prefetches = 0;         // parts ordered by a forecast
    uint64_t prefetches_useful = 0;  // used before they left
    uint64_t prefetches_wasted = 0;  // evicted without use, after a copy began
    // GoodPred = (predicted_used / predicted) * (predicted_ready / predicted) (ProMoE, section 4.1)
    uint64_t predicted = 0;        // experts in the last forecast for a layer before it was routed
    uint64_t predicted_used = 0;   // needed
    uint64_t predicted_ready = 0;  // resident when the layer was routed
};

// All counters, by name.
inline constexpr std::pair<const char *, uint64_t LayerCounts::*> counters[] = {
    {"hits", &LayerCounts::hits},
    {"late", &LayerCounts::late},
    {"misses", &LayerCounts::misses},
    {"on_host", &LayerCounts::on_host},
    {"host_rows", &LayerCounts::host_rows},
    {"bytes_read", &LayerCounts::bytes_read},
    {"bytes_useful", &LayerCounts::bytes_useful},
    {"bytes_wasted", &LayerCounts::bytes_wasted},
    {"prefetches", &LayerCounts::prefetches},
    {"prefetches_useful", &LayerCounts::prefetches_useful},
    {"prefetches_wasted", &LayerCounts::prefetches_wasted},
    {"predicted", &LayerCounts::predicted},
    {"predicted_used", &LayerCounts::predicted_used},
    {"predicted_ready", &LayerCounts::predicted_ready},
};

// A part of a layer's experts, or its stage: the key to a pool and to the slots of its experts.
struct Place {
    Layer layer;
    Part part;
    friend bool operator==(const Place &, const Place &) = default;
};

// A part that was displaced by a forecast leaves when the first copy into its slot ends (ProMoE, Algorithm 1: a victim
// is evicted when the copy starts). Until then nobody finds it, and restore() brings it back.
//
// INVARIANT, after every call: in every pool free + pending + ready + quarantined = slots; a part of an expert is in at
// most one slot; a pinned slot is pending or ready; a free slot has no expert, nothing arrived and nothing in flight.
class Residency {
  public:
    Residency(const Shape & shape, const Layout & layout);

    const Layout & layout() const { return layout_; }
    Pool pool(Place place) const { return layout_.layers[place.layer].pool_of(place.part); }
    int32_t n_expert() const { return shape_.n_expert; }
    int32_t n_pool() const { return int32_t(pools_.size()); }
    int32_t n_slot(Pool pool) const { return int32_t(pools_[pool].size()); }
    int32_t n_chunk(Layer layer) const { return int32_t(shape_.chunk_bytes[layer].size()); }

    // The slot, in the place's pool, that holds or awaits `expert`, or `none`.
    Slot find(Place place, Expert expert) const {
        return slot_of_[size_t(place.layer) * n_place + size_t(place.part)][expert];
    }
    const SlotInfo & at(Pool pool, Slot slot) const { return pools_[pool][slot]; }
    const LayerCounts & counts(Layer layer) const { return counts_[layer]; }
    LayerCounts & counts(Layer layer) { return counts_[layer]; }

    // A free slot, or `none`.
    Slot free_slot(Pool pool) const;
    // A free slot of the place's pool that this expert may have, or `none`. In a whole layer that is slot i for
    // expert i.
    Slot free_slot(Place place, Expert expert) const;
    // Whether the layer is whole (Layout::is_whole) and all its experts are resident: they stay.
    bool is_settled(Layer layer) const;
    bool is_whole(Layer layer) const { return is_whole_[layer]; }

    // REQUIRES: the slot is free, is of the place's pool, and the expert has no slot.
    void assign(Place place, Slot slot, Expert expert, bool prefetched);
    // As assign(), and all chunks are there without a copy. Nothing is counted.
    void keep(Place place, Slot slot, Expert expert);
    // Returns the mask of the chunks that had neither arrived nor been in flight; now they are. REQUIRES: pending.
    uint32_t take_missing_chunks(Pool pool, Slot slot);
    void chunks_arrived(Pool pool, Slot slot, uint32_t mask);
    void chunks_cancelled(Pool pool, Slot slot, uint32_t mask);
    void chunks_failed(Pool pool, Slot slot, uint32_t mask);
    void set_pinned(Pool pool, Slot slot, bool pinned);
    // The part in the slot is used: count its bytes as useful.
    void mark_used(Pool pool, Slot slot);
    // The slot becomes free, or quarantined if it is broken. REQUIRES: nothing in flight, not pinned.
    void release(Pool pool, Slot slot);
    // As release(), for a part that may come back: the slot becomes free. REQUIRES: may_leave(), ready.
    void displace(Pool pool, Slot slot);
    // No copy into the slot had begun: the displaced expert comes back, if it is not in another slot by now.
    // REQUIRES: pending, nothing arrived or in flight, not pinned.
    void restore(Pool pool, Slot slot);
    // The slot that awaits another part in the place of this one, or `none`.
    Slot displaced(Place place, Expert expert) const;
    // Free the quarantined slots.
    void reclaim();

    uint32_t all_chunks(Layer layer) const { return (1u << n_chunk(layer)) - 1; }
    uint64_t bytes_of(Place place, uint32_t mask) const;

    // Aborts the process if the invariant does not hold.
    void check() const;

  private:
    SlotInfo & mutable_at(Pool pool, Slot slot) { return pools_[pool][slot]; }
    void vacate(Pool pool, Slot slot);
    void forget_displaced(Pool pool, Slot slot);
    void count_wasted(const SlotInfo & gone);

    Shape shape_;
    Layout layout_;
    std::vector<std::vector<SlotInfo>> pools_;
    std::vector<std::vector<SlotInfo>> displaced_;  // as pools_; a free one: nothing
    std::vector<int32_t> n_displaced_;  // [pool]
    std::vector<int32_t> n_free_;  // [pool]
    int32_t n_quarantined_ = 0;
    std::vector<std::vector<Slot>> slot_of_;  // [layer * n_place + part][expert]
    std::vector<LayerCounts> counts_;  // [layer]
    std::vector<std::vector<uint64_t>> chunk_bytes_;  // [layer * n_place + part][chunk]
    std::vector<uint8_t> is_whole_;  // [layer]
    std::vector<int32_t> n_ready_;  // [layer], in its own slots
};

}  // namespace outrider
