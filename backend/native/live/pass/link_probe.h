// Measures the bandwidth of the copies into slots while nothing is computed: the bound that no schedule can beat.
#pragma once

#include "live/pass/cache.h"

namespace outrider {

// Return bytes per second, measured for about `seconds`. Copies as many random experts at a time as a layer's misses
// would be, whole or, `by_chunk`, matrix by matrix. Throws std::runtime_error if a slot is in use or a copy fails.
double measure_link(Cache & cache, const Shape & shape, double seconds, bool by_chunk);

}  // namespace outrider
