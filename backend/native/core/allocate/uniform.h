// How much each layer gets: the same number of slots in every layer.
#pragma once

#include "../types.h"

namespace outrider {

// Slots per layer for a cache rate (share of all experts that is resident), at least
// `n_expert_used` so that one token of one layer fits, at most `n_expert`.
std::vector<int32_t> allocate_uniform(const Shape & shape, double cache_rate);

}  // namespace outrider
