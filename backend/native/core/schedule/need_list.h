// The needs of the layer in progress: the parts of its experts in computing order, and their counts.
#pragma once

#include <span>
#include <utility>

#include "core/evict/eviction.h"
#include "core/residency.h"
#include "core/schedule/host_share.h"

namespace outrider {

// A part of an expert that the layer in progress needs.
struct Need {
    Expert expert;
    Part part;
    int32_t n_token;

    // NeedList counts these: nobody else changes them, nor the part.
    bool fetched = false;   // the layer gave it a slot, and it is not computed
    bool issued = false;    // Compute was sent
    bool computed = false;
    bool on_host = false;   // the host computes it: it needs no slot

    bool hit = false;          // it was ready at the gate, and has not left since
    int32_t n_arrived = 0;     // chunks, at the gate
    double rank = 0;           // the lower comes first among needs of equal n_arrived
    bool stays = false;        // in a layer that streams: it is worth one of the layer's own slots
    bool promoted = false;     // its predicted copies were cancelled, to be queued high
    int32_t attempts = 0;      // copies that failed
    // For needs that the host may compute:
    Missing missing{};         // at the gate; no bytes: it was resident, or only the device can have it
    size_t host_turn = 0;      // the host computes in this order
    bool taken_over = false;   // the host took it from the copies
    bool withdrawing = false;  // Withdraw was sent; the host may have begun

    // Whether the device waits for it.
    bool is_open() const { return !computed && !on_host; }
};

class NeedList {
  public:
    explicit NeedList(const Residency & residency) : residency_(residency) {}

    // Replace the list by the needs of a layer. A part in the stage is needed there.
    void begin(Layer layer, std::span<const Demand> demands);
    void clear();
    // Whether the last layer that began passes experts through a few of its slots, or through the stage.
    bool streams() const { return streams_; }
    void set_streams(bool streams) { streams_ = streams; }

    Layer layer() const { return layer_; }  // in progress; none after clear()
    size_t size() const { return needs_.size(); }
    Need & operator[](size_t position) { return needs_[position]; }
    auto begin() { return needs_.begin(); }
    auto end() { return needs_.end(); }
    auto begin() const { return needs_.begin(); }
    auto end() const { return needs_.end(); }

    // Numbers of needs:
    size_t n_open() const { return n_open_; }        // not computed
    size_t n_fetched() const { return n_fetched_; }
    size_t n_staged() const { return n_staged_; }    // in the stage, not computed
    int32_t n_issued() const { return n_issued_; }   // to the device, not computed
    int32_t n_issued_token() const { return n_issued_token_; }  // sum over these
    bool any_issued() const { return any_issued_; }  // to the device, computed or not

    Pool pool_of(const Need & need) const { return residency_.pool({layer_, need.part}); }
    Slot slot_of(const Need & need) const { return residency_.find({layer_, need.part}, need.expert); }
    // REQUIRES: slot_of() is not `none`.
    const SlotInfo & info_of(const Need & need) const { return residency_.at(pool_of(need), slot_of(need)); }
    bool is_ready(const Need & need) const {
        const Slot slot = slot_of(need);
        return slot != none && residency_.at(pool_of(need), slot).state == SlotState::ready;
    }
    // Ready, and a bottom's top is computed or, if the device gathers them (OrderedOptions), issued.
    bool can_compute(const Need & need, bool gathers = false) const;
    // The need of a part, or null.
    const Need * find(Layer layer, Expert expert, Part part) const;
    Need * find(Layer layer, Expert expert, Part part) {
        return const_cast<Need *>(std::as_const(*this).find(layer, expert, part));
    }
    // Whether the slot holds what the device waits for.
    bool is_open(const SlotInfo & info) const {
        const Need * need = find(info.layer, info.expert, info.part);
        return need && need->is_open();
    }
    // Whether the device waits for a part that has no slot.
    bool any_without_slot() const;
    // Whether a pool of the layer has too little room for its missing parts beside the needed resident ones.
    bool exceeds_slots() const;

    // Computing order: by id, the top before its bottom.
    void sort_by_id();
    // Computing order: `by_token`: the most tokens first; then the earliest arrival. Stable, so a bottom never
    // precedes its top. `eviction`: order equals by what is worth keeping; null: as the router named them.
    void sort(bool by_token, const Eviction * eviction);

    void fetch(Need & need);       // the layer gave it a slot
    void unfetch(Need & need);     // it lost that slot, or is computed
    void stage(Need & need);       // it got a slot of the stage
    void unstage(Need & need);     // it lost that slot
    void issue(Need & need);       // to the device
    void give_to_host(Need & need) { need.on_host = true; }
    void take_from_host(Need & need) { need.on_host = need.issued = need.withdrawing = false; }
    void issue_to_host(Need & need);
    void finish(Need & need);      // it is computed

    // Aborts the process if a count is wrong.
    void check() const;

  private:
    void rank(const Eviction & eviction);

    const Residency & residency_;
    Layer layer_ = none;
    std::vector<Need> needs_;
    size_t n_open_ = 0, n_fetched_ = 0, n_staged_ = 0;
    int32_t n_issued_ = 0, n_issued_token_ = 0;
    bool any_issued_ = false;
    bool streams_ = false;
};

}  // namespace outrider
