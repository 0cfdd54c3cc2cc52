// Slots and cuts of each layer from a given plan.
#pragma once

#include "core/spec.h"

namespace outrider {

// Arrays of the spec, each [n_layer]: "n_slot", the layers' slots, or "share", the weights by which
// the rate's bytes are divided among the layers; "top_share" (MoEpic's theta), by default
// 1. Number "n_bottom": slots for bottoms in each kind, by default 2 * n_expert_used.
// Every layer has n_expert_used to n_expert slots. A plan by "n_slot" that exceeds the rate is
// refused, not changed.
Layout allocate_planned(const Spec & spec, const Shape & shape, double cache_rate);

}  // namespace outrider
