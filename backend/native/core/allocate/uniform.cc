#include "uniform.h"

#include <algorithm>
#include <cmath>

namespace outrider {

std::vector<int32_t> allocate_uniform(const Shape & shape, double cache_rate) {
    // Rounded down, so that the plan is never exceeded; the epsilon keeps 0.3 * 10 at 3.
    const auto wanted = int32_t(std::floor(cache_rate * shape.n_expert + 1e-9));
    const int32_t n_slot = std::clamp(wanted, shape.n_expert_used, shape.n_expert);
    return std::vector<int32_t>(shape.n_layer, n_slot);
}

}  // namespace outrider
