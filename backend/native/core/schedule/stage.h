// The stage of a prompt (LayerLayout::stage): a layer that needs more experts than it has slots passes those that it
// does not keep through the stage. As soon as all its needs are ordered, the experts of the next layers are ordered
// too, before their routers have chosen: nearly all of them will be needed. So copies go on while a layer computes
// and while its attention does. A layer that needed few in the pass before is left out: llama.cpp computes the last
// layer for the last token only.
#pragma once

#include "core/schedule/victims.h"

namespace outrider {

class Stage : OrderedPart {
  public:
    Stage(const OrderedPart & part, Victims & victims) : OrderedPart(part), victims_(victims) {}

    // Forget which layer is next.
    void restart() { next_ = none; }
    // The layer in progress has chosen: remember whether it needs most of its experts. REQUIRES: a pass of many tokens.
    void note_choice();
    // The layer in progress, or `none`.
    Pool pool() const { return residency_.pool({needs_.layer(), Part::staged}); }
    // Release experts that were staged in vain, for the layer in progress or one before it.
    void sweep();
    // Whether a missing part passes through the stage. REQUIRES: the layer streams.
    bool takes(const Need & need) const;
    // A free slot, or one that waits for the last layer of all; or `none`.
    Slot acquire();
    // Order experts of the next layers, as far as there is room, if no need of this one waits for a slot.
    void order_ahead(Commands & out);
    // How many experts are computed together.
    size_t wave_size() const {
        return std::min(size_t(residency_.n_slot(pool())), needs_.size()) / size_t(std::max(options_.n_wave, 1));
    }

  private:
    void begin_layer(Layer layer);
    bool order_layer(Commands & out);
    bool needs_most() const { return 4 * needs_.size() >= 3 * size_t(residency_.n_expert()); }

    Victims & victims_;
    Layer next_ = none;  // whose experts are ordered next
    Expert next_expert_ = 0;  // from this one on
    std::vector<uint8_t> stays_;  // [expert], of that layer: it is worth a slot of the layer's own
    std::vector<uint8_t> needed_few_;  // [layer]: in the last pass of many tokens
};

}  // namespace outrider
