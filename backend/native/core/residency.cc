// INVARIANT: see residency.h; check() states it in code.
#include "residency.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>

namespace outrider {
namespace {

void require(bool condition, const char * what) {
    if (!condition) {
        std::fprintf(stderr, "outrider: broken invariant: %s\n", what);
        std::abort();
    }
}

}  // namespace

Residency::Residency(const Shape & shape, const std::vector<int32_t> & n_slot) : chunk_bytes_(shape.chunk_bytes) {
    require(int32_t(n_slot.size()) == shape.n_layer && int32_t(chunk_bytes_.size()) == shape.n_layer,
            "sizes are given for every layer");
    layers_.resize(shape.n_layer);
    for (Layer l = 0; l < shape.n_layer; l++) {
        require(!chunk_bytes_[l].empty() && chunk_bytes_[l].size() < 32, "a layer has 1 to 31 chunks per expert");
        layers_[l].slots.resize(n_slot[l]);
        layers_[l].slot_of.assign(shape.n_expert, none);
    }
}

Slot Residency::free_slot(Layer layer) const {
    const auto & slots = layers_[layer].slots;
    for (size_t i = 0; i < slots.size(); i++) {
        if (slots[i].state == SlotState::free) {
            return Slot(i);
        }
    }
    return none;
}

void Residency::assign(Layer layer, Slot slot, Expert expert, bool prefetched) {
    SlotInfo & s = mutable_at(layer, slot);
    require(s.state == SlotState::free && find(layer, expert) == none, "assign takes a free slot and an absent expert");
    s = SlotInfo{};
    s.state = SlotState::pending;
    s.expert = expert;
    s.prefetched = prefetched;
    layers_[layer].slot_of[expert] = slot;
    if (prefetched) {
        counts(layer).prefetches++;
    }
}

uint32_t Residency::take_missing_chunks(Layer layer, Slot slot) {
    SlotInfo & s = mutable_at(layer, slot);
    require(s.state == SlotState::pending, "chunks are ordered for pending slots");
    const uint32_t missing = all_chunks(layer) & ~s.arrived & ~s.flying;
    s.flying |= missing;
    return missing;
}

void Residency::chunks_arrived(Layer layer, Slot slot, uint32_t mask) {
    SlotInfo & s = mutable_at(layer, slot);
    require(s.state == SlotState::pending && (s.flying & mask) == mask, "only what was ordered arrives");
    const uint64_t bytes = bytes_of(layer, mask);
    s.flying &= ~mask;
    s.arrived |= mask;
    s.bytes += bytes;
    counts(layer).bytes_read += bytes;
    if (s.used) {
        counts(layer).bytes_useful += bytes;
    }
    if (s.arrived == all_chunks(layer) && !s.broken) {
        s.state = SlotState::ready;
    }
}

void Residency::chunks_cancelled(Layer layer, Slot slot, uint32_t mask) {
    SlotInfo & s = mutable_at(layer, slot);
    require((s.flying & mask) == mask, "only what was ordered is cancelled");
    s.flying &= ~mask;
}

void Residency::chunks_failed(Layer layer, Slot slot, uint32_t mask) {
    chunks_cancelled(layer, slot, mask);
    mutable_at(layer, slot).broken = true;
}

void Residency::set_pinned(Layer layer, Slot slot, bool pinned) {
    SlotInfo & s = mutable_at(layer, slot);
    require(s.state == SlotState::pending || s.state == SlotState::ready, "only held slots are pinned");
    s.pinned = pinned;
}

void Residency::mark_used(Layer layer, Slot slot) {
    SlotInfo & s = mutable_at(layer, slot);
    if (s.used) {
        return;
    }
    s.used = true;
    counts(layer).bytes_useful += s.bytes;
    if (s.prefetched) {
        counts(layer).prefetches_useful++;
    }
}

void Residency::release(Layer layer, Slot slot) {
    SlotInfo & s = mutable_at(layer, slot);
    require(s.flying == 0 && !s.pinned && s.expert != none, "a slot is released when idle");
    if (!s.used) {
        counts(layer).bytes_wasted += s.bytes;
        if (s.prefetched) {
            counts(layer).prefetches_wasted++;
        }
    }
    layers_[layer].slot_of[s.expert] = none;
    const bool broken = s.broken;
    s = SlotInfo{};
    s.state = broken ? SlotState::quarantined : SlotState::free;
}

void Residency::reclaim() {
    for (auto & l : layers_) {
        for (auto & s : l.slots) {
            if (s.state == SlotState::quarantined) {
                s = SlotInfo{};
            }
        }
    }
}

uint64_t Residency::bytes_of(Layer layer, uint32_t mask) const {
    uint64_t sum = 0;
    for (int32_t c = 0; c < n_chunk(layer); c++) {
        if (mask & (1u << c)) {
            sum += chunk_bytes_[layer][c];
        }
    }
    return sum;
}

void Residency::check() const {
    for (Layer l = 0; l < n_layer(); l++) {
        const auto & layer = layers_[l];
        size_t held = 0;
        uint64_t undecided = 0;
        for (Slot i = 0; i < n_slot(l); i++) {
            const SlotInfo & s = layer.slots[i];
            if (s.state == SlotState::pending || s.state == SlotState::ready) {
                held++;
                require(s.expert != none && layer.slot_of[s.expert] == i, "a held slot is found by its expert");
                require((s.arrived & s.flying) == 0, "a chunk is either here or on its way");
                require(s.state != SlotState::ready || (s.arrived == all_chunks(l) && !s.flying && !s.broken),
                        "a ready slot is whole");
                undecided += s.used ? 0 : s.bytes;
            } else {
                require(s.expert == none && !s.arrived && !s.flying && !s.pinned, "a free slot is empty");
            }
        }
        size_t known = 0;
        for (Slot s : layer.slot_of) {
            known += s != none;
        }
        require(known == held, "an expert is in at most one slot");
        const LayerCounts & c = layer.counts;
        require(c.bytes_read == c.bytes_useful + c.bytes_wasted + undecided, "every byte read is accounted for");
    }
}

}  // namespace outrider
