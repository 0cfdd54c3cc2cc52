// INVARIANT: see residency.h; check() states it in code.
#include "core/residency.h"

#include <cstdio>
#include <cstdlib>

namespace outrider {

void broken_invariant(const char * what) {
    std::fprintf(stderr, "outrider: broken invariant: %s\n", what);
    std::abort();
}

namespace {

size_t index_of(Place place) { return size_t(place.layer) * n_place + size_t(place.part); }

Place place_of(const SlotInfo & s) { return {s.layer, s.part}; }

}  // namespace

Residency::Residency(const Shape & shape, const Layout & layout) : shape_(shape), layout_(layout) {
    layout_.validate(shape_);
    for (const PoolLayout & pool : layout_.pools) {
        pools_.emplace_back(size_t(pool.n_slot));
        displaced_.emplace_back(size_t(pool.n_slot));
        n_displaced_.push_back(0);
        n_free_.push_back(pool.n_slot);
    }
    slot_of_.assign(size_t(shape_.n_layer) * n_place, std::vector<Slot>(size_t(shape_.n_expert), none));
    counts_.resize(size_t(shape_.n_layer));
    n_ready_.assign(size_t(shape_.n_layer), 0);
    for (Layer l = 0; l < shape_.n_layer; l++) {
        require(n_chunk(l) > 0 && n_chunk(l) < 32, "a layer has 1 to 31 chunks per expert");
        is_whole_.push_back(layout_.is_whole(shape_, l));
        for (Part part : {Part::top, Part::bottom, Part::staged}) {
            auto & bytes = chunk_bytes_.emplace_back();
            for (Chunk c = 0; c < n_chunk(l); c++) {
                bytes.push_back(layout_.chunk_bytes(shape_, l, part, c));
            }
        }
    }
}

Slot Residency::free_slot(Pool pool) const {
    if (n_free_[pool] > 0) {
        const auto & slots = pools_[pool];
        for (size_t i = 0; i < slots.size(); i++) {
            if (slots[i].state == SlotState::free) {
                return Slot(i);
            }
        }
    }
    return none;
}

Slot Residency::free_slot(Place place, Expert expert) const {
    const Pool p = pool(place);
    if (place.part != Part::top || !is_whole_[place.layer]) {
        return free_slot(p);
    }
    return at(p, expert).state == SlotState::free ? expert : none;
}

bool Residency::is_settled(Layer layer) const { return is_whole_[layer] && n_ready_[layer] == shape_.n_expert; }

void Residency::assign(Place place, Slot slot, Expert expert, bool prefetched) {
    SlotInfo & s = mutable_at(pool(place), slot);
    require(s.state == SlotState::free && find(place, expert) == none, "assign takes a free slot and an absent expert");
    s = SlotInfo{};
    s.state = SlotState::pending;
    s.layer = place.layer;
    s.part = place.part;
    s.expert = expert;
    s.prefetched = prefetched;
    n_free_[pool(place)]--;
    slot_of_[index_of(place)][expert] = slot;
    if (prefetched) {
        counts(place.layer).prefetches++;
    }
}

void Residency::keep(Place place, Slot slot, Expert expert) {
    assign(place, slot, expert, false);
    SlotInfo & s = mutable_at(pool(place), slot);
    s.state = SlotState::ready;
    s.arrived = all_chunks(place.layer);
    s.used = true;
    n_ready_[place.layer] += place.part == Part::top;
}

uint32_t Residency::take_missing_chunks(Pool pool, Slot slot) {
    SlotInfo & s = mutable_at(pool, slot);
    require(s.state == SlotState::pending, "chunks are ordered for pending slots");
    const uint32_t missing = all_chunks(s.layer) & ~s.arrived & ~s.flying;
    s.flying |= missing;
    return missing;
}

void Residency::chunks_arrived(Pool pool, Slot slot, uint32_t mask) {
    SlotInfo & s = mutable_at(pool, slot);
    require(s.state == SlotState::pending && (s.flying & mask) == mask, "only what was ordered arrives");
    const uint64_t bytes = bytes_of(place_of(s), mask);
    forget_displaced(pool, slot);
    s.flying &= ~mask;
    s.arrived |= mask;
    s.bytes += bytes;
    counts(s.layer).bytes_read += bytes;
    if (s.used) {
        counts(s.layer).bytes_useful += bytes;
    }
    if (s.arrived == all_chunks(s.layer) && !s.broken) {
        s.state = SlotState::ready;
        n_ready_[s.layer] += s.part == Part::top;
    }
}

void Residency::chunks_cancelled(Pool pool, Slot slot, uint32_t mask) {
    SlotInfo & s = mutable_at(pool, slot);
    require((s.flying & mask) == mask, "only what was ordered is cancelled");
    s.flying &= ~mask;
}

void Residency::chunks_failed(Pool pool, Slot slot, uint32_t mask) {
    chunks_cancelled(pool, slot, mask);
    forget_displaced(pool, slot);
    mutable_at(pool, slot).broken = true;
}

void Residency::set_pinned(Pool pool, Slot slot, bool pinned) {
    SlotInfo & s = mutable_at(pool, slot);
    require(s.state == SlotState::pending || s.state == SlotState::ready, "only held slots are pinned");
    s.pinned = pinned;
}

void Residency::mark_used(Pool pool, Slot slot) {
    SlotInfo & s = mutable_at(pool, slot);
    if (s.used) {
        return;
    }
    s.used = true;
    counts(s.layer).bytes_useful += s.bytes;
    if (s.prefetched) {
        counts(s.layer).prefetches_useful++;
    }
}

void Residency::count_wasted(const SlotInfo & gone) {
    if (!gone.used) {
        counts(gone.layer).bytes_wasted += gone.bytes;
        counts(gone.layer).prefetches_wasted += gone.prefetched;
    }
}

void Residency::vacate(Pool pool, Slot slot) {
    SlotInfo & s = mutable_at(pool, slot);
    require(s.flying == 0 && !s.pinned && s.expert != none, "a slot is released when idle");
    slot_of_[index_of(place_of(s))][s.expert] = none;
    n_ready_[s.layer] -= s.state == SlotState::ready && s.part == Part::top;
    const bool broken = s.broken;
    s = SlotInfo{};
    s.state = broken ? SlotState::quarantined : SlotState::free;
    n_free_[pool] += broken ? 0 : 1;
    n_quarantined_ += broken ? 1 : 0;
}

void Residency::release(Pool pool, Slot slot) {
    forget_displaced(pool, slot);
    count_wasted(at(pool, slot));
    vacate(pool, slot);
}

void Residency::displace(Pool pool, Slot slot) {
    const SlotInfo gone = at(pool, slot);
    require(gone.state == SlotState::ready, "what is displaced is whole");
    forget_displaced(pool, slot);
    vacate(pool, slot);
    displaced_[pool][slot] = gone;
    n_displaced_[pool]++;
}

void Residency::forget_displaced(Pool pool, Slot slot) {
    SlotInfo & gone = displaced_[pool][slot];
    if (gone.state == SlotState::ready) {
        count_wasted(gone);
        gone = SlotInfo{};
        n_displaced_[pool]--;
    }
}

void Residency::restore(Pool pool, Slot slot) {
    const SlotInfo & s = at(pool, slot);
    require(s.state == SlotState::pending && s.arrived == 0, "a part is restored before anything arrived");
    vacate(pool, slot);
    const SlotInfo old = displaced_[pool][slot];
    if (old.state != SlotState::ready || find(place_of(old), old.expert) != none) {
        forget_displaced(pool, slot);
        return;
    }
    displaced_[pool][slot] = SlotInfo{};
    n_displaced_[pool]--;
    mutable_at(pool, slot) = old;
    n_free_[pool]--;
    n_ready_[old.layer] += old.part == Part::top;
    slot_of_[index_of(place_of(old))][old.expert] = slot;
}

Slot Residency::displaced(Place place, Expert expert) const {
    const Pool p = pool(place);
    for (Slot i = 0; n_displaced_[p] > 0 && i < n_slot(p); i++) {
        const SlotInfo & gone = displaced_[p][i];
        if (gone.state == SlotState::ready && place_of(gone) == place && gone.expert == expert) {
            return i;
        }
    }
    return none;
}

void Residency::reclaim() {
    if (n_quarantined_ == 0) {
        return;
    }
    for (Pool p = 0; p < n_pool(); p++) {
        for (SlotInfo & s : pools_[p]) {
            if (s.state == SlotState::quarantined) {
                s = SlotInfo{};
                n_free_[p]++;
            }
        }
    }
    n_quarantined_ = 0;
}

uint64_t Residency::bytes_of(Place place, uint32_t mask) const {
    const auto & chunks = chunk_bytes_[index_of(place)];
    uint64_t sum = 0;
    for (size_t c = 0; c < chunks.size(); c++) {
        sum += mask & (1u << c) ? chunks[c] : 0;
    }
    return sum;
}

void Residency::check() const {
    std::vector<uint64_t> undecided(counts_.size(), 0);
    std::vector<size_t> held(slot_of_.size(), 0);
    for (Pool p = 0; p < n_pool(); p++) {
        int32_t n_free = 0;
        int32_t n_gone = 0;
        for (Slot i = 0; i < n_slot(p); i++) {
            const SlotInfo & s = at(p, i);
            if (const SlotInfo & gone = displaced_[p][i]; gone.state == SlotState::ready) {
                n_gone++;
                require(s.state == SlotState::pending && s.arrived == 0,
                        "what is displaced leaves with the first copy");
                undecided[gone.layer] += gone.used ? 0 : gone.bytes;
            }
            n_free += s.state == SlotState::free;
            if (s.state == SlotState::pending || s.state == SlotState::ready) {
                require(s.expert != none && pool(place_of(s)) == p && find(place_of(s), s.expert) == i,
                        "a held slot is found by its expert");
                require((s.arrived & s.flying) == 0, "a chunk is either here or on its way");
                require(s.state != SlotState::ready || (s.arrived == all_chunks(s.layer) && !s.flying && !s.broken),
                        "a ready slot is whole");
                held[index_of(place_of(s))]++;
                undecided[s.layer] += s.used ? 0 : s.bytes;
            } else {
                require(s.expert == none && !s.arrived && !s.flying && !s.pinned, "a free slot is empty");
            }
        }
        require(n_free == n_free_[p], "free slots are counted");
        require(n_gone == n_displaced_[p], "displaced parts are counted");
    }
    for (size_t i = 0; i < slot_of_.size(); i++) {
        size_t known = 0;
        for (Slot s : slot_of_[i]) {
            known += s != none;
        }
        require(known == held[i], "a part of an expert is in at most one slot");
    }
    for (Layer l = 0; l < shape_.n_layer; l++) {
        const LayerCounts & c = counts_[l];
        require(c.bytes_read == c.bytes_useful + c.bytes_wasted + undecided[l], "every byte read is accounted for");
    }
}

}  // namespace outrider
