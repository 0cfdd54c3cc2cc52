// The common state of the parts of the ordered scheduler: its options and their objects.
#pragma once

#include "core/schedule/copy_desk.h"
#include "core/schedule/need_list.h"

namespace outrider {

enum class ComputeOrder : uint8_t {
    id,       // by their ids, one after the other, as frameworks do (ProMoE, section 5.3)
    arrived,  // experts that have arrived come first
    tokens,   // experts of the most tokens first, then arrived ones (Klotski, section 5)
};

// The steps of ProMoE's ablation (Figures 12 and 13), one switch each, and what other methods add. ProMoE's baseline
// is the first three off, without forecasts.
struct OrderedOptions {
    bool chunks = true;            // copy matrix by matrix; otherwise whole experts
    bool early_preemption = true;  // order all needed copies at the gate; otherwise each when its turn to be
                                   // computed comes
    ComputeOrder order = ComputeOrder::arrived;
    bool plain = false;            // in a strict order: what the layer needs later may leave for what it needs first
    bool first_ahead = false;      // fetch the first expert of the next layer when all of this one's are ordered
    int32_t max_open = 0;  // missing parts that may have slots and not be computed; 0: any number
    // A layer of a prompt that needs more than its slots hold passes experts through this many of them, and keeps in
    // the others what is most worth keeping; 0: through all of them, and the last ones read stay.
    int32_t n_stream = 0;
    // About this many waves compute a layer that uses the stage. With fewer, computing waits longer for the first
    // one; more of them cost more launches.
    int32_t n_wave = 2;
    bool fill = false;  // where a layer has a slot for every expert, fetch the experts that nobody asked for too
    // The device computes a decoded token's experts together, once all are there: an expert's turn comes when those
    // before it can be computed, not when they are.
    bool gather = false;
    bool prefetch_after_first = false;  // order the next layer's copies when the first expert of this one can be
                                        // computed (DuoServe-MoE, section 5.3)
};

class OrderedPart {
  protected:
    OrderedPart(Residency & residency, Eviction & eviction, CopyDesk & desk, const OrderedOptions & options,
                const bool & many, NeedList & needs)
        : residency_(residency), eviction_(eviction), desk_(desk), options_(options), many_(many), needs_(needs) {}

    bool strict() const { return options_.order == ComputeOrder::id; }
    // Whether a layer of the pass may stream, and the next layers may be read ahead of their gates.
    bool may_stream() const { return many_ && !strict() && options_.n_stream > 0; }
    bool is_buffer(Pool pool) const { return residency_.layout().pools[size_t(pool)].buffer; }
    bool is_cut(Layer layer) const { return residency_.layout().layers[size_t(layer)].is_cut(); }
    int32_t n_layer() const { return int32_t(residency_.layout().layers.size()); }
    // Order the chunks that the slot lacks and that are not in flight. Staged experts are copied whole: nothing more
    // urgent comes, and few large copies keep the link busy.
    void order(Place place, Slot slot, Urgency urgency, Commands & out) {
        const bool by_chunk = options_.chunks && place.part != Part::staged;
        desk_.order(residency_.pool(place), slot, urgency, by_chunk, out);
    }
    // Order the rest of a part whose other copies were cancelled.
    void complete(Place place, Slot slot, Commands & out, Urgency urgency = Urgency::low) {
        const SlotInfo & info = residency_.at(residency_.pool(place), slot);
        if (info.state == SlotState::pending && info.flying == 0 && !info.broken) {
            order(place, slot, urgency, out);
        }
    }

    Residency & residency_;
    Eviction & eviction_;
    CopyDesk & desk_;
    const OrderedOptions & options_;
    const bool & many_;  // the pass has many tokens
    NeedList & needs_;
};

}  // namespace outrider
