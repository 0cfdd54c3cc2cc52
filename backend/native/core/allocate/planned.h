// Slots and cuts of each layer by a plan that was made elsewhere.
#pragma once

#include "../spec.h"

namespace outrider {

// Arrays of the spec, each [n_layer]: "n_slot", the layers' slots, or "share", the weights by which
// the rate's bytes are divided among the layers; "top_share" (MoEpic's theta), 1 where it is
// missing. Number "n_bottom": slots for bottoms in each kind, 2 * n_expert_used where it is missing.
// Every layer has n_expert_used to n_expert slots. A plan by "n_slot" that takes more than the rate
// allows is refused: one that was silently changed is none.
Layout allocate_planned(const Spec & spec, const Shape & shape, double cache_rate);

}  // namespace outrider
