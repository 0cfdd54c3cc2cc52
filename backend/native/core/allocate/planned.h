// Slots and cuts of each layer by a plan that was made elsewhere.
#pragma once

#include "../spec.h"

namespace outrider {

// Arrays of the spec, each [n_layer]: "n_slot", the layers' slots, or "share", the layers' weights
// by which the rate's bytes are divided; "top_share" (MoEpic's theta), 1 where it is missing.
// Number "n_bottom": slots for bottoms in each kind, 2 * n_expert_used where it is missing.
// "n_slot" is raised to n_expert_used and lowered to n_expert; what then takes more than the rate
// allows is refused, since a plan that is silently another one is none.
Layout allocate_planned(const Spec & spec, const Shape & shape, double cache_rate);

}  // namespace outrider
