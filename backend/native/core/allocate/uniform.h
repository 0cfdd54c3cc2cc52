// The same number of slots for every layer.
#pragma once

#include "core/layout.h"

namespace outrider {

// Return slots for a cache rate (share of all experts' bytes): the same number in every layer, from `n_expert_used`, so
// that one token fits, to `n_expert`.
//
// With `top_share` (MoEpic's theta) below 1 only tops are kept, and bottoms get buffers. It is rounded to a cut that
// the layers allow. If all tops fit, theta is at least V / (N * expert), since at most N experts can be kept (MoEpic,
// section 3.4.1). 0 keeps nothing: prefetching only.
Layout allocate_uniform(const Shape & shape, double cache_rate, double top_share = 1);

}  // namespace outrider
