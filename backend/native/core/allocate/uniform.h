// The same number of slots for every layer.
#pragma once

#include "core/layout.h"

namespace outrider {

// Slots for a cache rate (share of all experts' bytes that is resident): in every layer equally
// many, at least `n_expert_used` so that one token of one layer fits, at most `n_expert`.
//
// `top_share` (MoEpic's theta) below 1 keeps only the tops of experts, and has buffers for the
// bottoms; it is rounded to where the layers may be cut. Where all tops fit they are as large as the
// rate allows: theta is at least V / (N * expert), since no more than N experts can be kept (MoEpic,
// section 3.4.1). 0 keeps nothing: prefetching only.
Layout allocate_uniform(const Shape & shape, double cache_rate, double top_share = 1);

}  // namespace outrider
