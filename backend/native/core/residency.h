// What is where: the slots of every layer, their states, and what is on its way into them.
#pragma once

#include "types.h"

namespace outrider {

struct SlotInfo {
    SlotState state = SlotState::free;
    Expert expert = none;      // what it holds or shall hold
    uint32_t arrived = 0;      // bit per chunk that has been copied
    uint32_t flying = 0;       // bit per chunk whose copy was ordered and has not ended
    bool pinned = false;       // needed by the layer in progress: must not leave
    bool broken = false;       // a copy failed; quarantined as soon as nothing is flying
    bool prefetched = false;   // ordered by a forecast
    bool used = false;         // computed, or found at routing time, since it was ordered
    uint64_t bytes = 0;        // copied into it since it was ordered
};

// Counters since the start. bytes_read = bytes_useful + bytes_wasted + what is resident and unused.
struct LayerCounts {
    uint64_t hits = 0;
    uint64_t late = 0;
    uint64_t misses = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_useful = 0;
    uint64_t bytes_wasted = 0;
    uint64_t prefetches = 0;         // experts ordered by a forecast
    uint64_t prefetches_useful = 0;  // of these, used before they left
    uint64_t prefetches_wasted = 0;  // of these, gone without use
};

// INVARIANT, after every call: in every layer free + pending + ready + quarantined = slots; an
// expert is in at most one slot; a pinned slot is pending or ready; a free slot has no expert,
// nothing arrived and nothing flying.
class Residency {
  public:
    Residency(const Shape & shape, const std::vector<int32_t> & n_slot);

    int32_t n_layer() const { return int32_t(layers_.size()); }
    int32_t n_slot(Layer layer) const { return int32_t(layers_[layer].slots.size()); }
    int32_t n_chunk(Layer layer) const { return int32_t(chunk_bytes_[layer].size()); }

    // The slot that holds or awaits `expert`, or `none`.
    Slot find(Layer layer, Expert expert) const { return layers_[layer].slot_of[expert]; }
    const SlotInfo & at(Layer layer, Slot slot) const { return layers_[layer].slots[slot]; }
    const LayerCounts & counts(Layer layer) const { return layers_[layer].counts; }
    LayerCounts & counts(Layer layer) { return layers_[layer].counts; }

    // A free slot, or `none`.
    Slot free_slot(Layer layer) const;

    // REQUIRES: the slot is free and the expert has no slot.
    void assign(Layer layer, Slot slot, Expert expert, bool prefetched);
    // REQUIRES: pending. Returns the chunk mask that was neither copied nor on its way, now flying.
    uint32_t take_missing_chunks(Layer layer, Slot slot);
    void chunks_arrived(Layer layer, Slot slot, uint32_t mask);
    void chunks_cancelled(Layer layer, Slot slot, uint32_t mask);
    void chunks_failed(Layer layer, Slot slot, uint32_t mask);
    void set_pinned(Layer layer, Slot slot, bool pinned);
    // The expert in the slot is of use: its bytes count as useful from now on.
    void mark_used(Layer layer, Slot slot);
    // REQUIRES: nothing flying, not pinned. The slot becomes free, or quarantined when broken.
    void release(Layer layer, Slot slot);
    // Quarantined slots become free again.
    void reclaim();

    uint32_t all_chunks(Layer layer) const { return (1u << n_chunk(layer)) - 1; }
    uint64_t bytes_of(Layer layer, uint32_t mask) const;

    // Aborts the process when the invariant does not hold (tests and debug builds).
    void check() const;

  private:
    struct LayerState {
        std::vector<SlotInfo> slots;
        std::vector<Slot> slot_of;  // [expert]
        LayerCounts counts;
    };

    SlotInfo & mutable_at(Layer layer, Slot slot) { return layers_[layer].slots[slot]; }

    std::vector<LayerState> layers_;
    std::vector<std::vector<uint64_t>> chunk_bytes_;
};

}  // namespace outrider
