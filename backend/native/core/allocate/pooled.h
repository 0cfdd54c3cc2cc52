// Slots that all layers of a kind share.
#pragma once

#include "../layout.h"

namespace outrider {

// One pool for all layers (MoE-Infinity, Algorithm 1: one cache for the whole model), one per kind
// where layers' experts differ in shape. Each kind gets its share of the bytes, and at least the
// experts of one token. `buffer`: what was computed is released (Klotski, section 5).
Layout allocate_one_pool(const Shape & shape, double cache_rate, bool buffer);

// DuoServe-MoE: experts pass through `n_slot` slots, whatever the rate, and nothing is kept: its
// point is the peak of memory. Fewer where the rate does not allow them, but those of one token.
Layout allocate_stream(const Shape & shape, double cache_rate, int32_t n_slot);

}  // namespace outrider
