// Slots shared by all layers of a kind.
#pragma once

#include "core/layout.h"

namespace outrider {

// One pool for all layers (MoE-Infinity, Algorithm 1: one cache for the whole model), one per kind
// where layers' experts differ in shape. Each kind gets its share of the bytes, and at least the
// experts of one token. `buffer`: computed experts are released (Klotski, section 5).
Layout allocate_one_pool(const Shape & shape, double cache_rate, bool buffer);

// DuoServe-MoE: experts pass through `n_slot` slots, at any rate, and none is kept, for a low peak of memory. Fewer if
// the rate does not allow that many, but at least those of one token.
Layout allocate_stream(const Shape & shape, double cache_rate, int32_t n_slot);

}  // namespace outrider
