#include "planned.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "split.h"

namespace outrider {
namespace {

const std::vector<float> & row(const Spec & spec, const Shape & shape, const std::string & key) {
    const Array & array = spec.array(key);
    if (array.values.size() != size_t(shape.n_layer)) {
        throw std::invalid_argument("The plan's " + key + " is of another number of layers than the model");
    }
    return array.values;
}

// Slots of each layer, where it gets its share of the bytes that the bottoms leave.
void divide(const Shape & shape, uint64_t budget_bytes, const std::vector<float> & share, Split & split) {
    double sum = 0;
    for (float s : share) {
        if (!(s >= 0) || !std::isfinite(s)) {
            throw std::invalid_argument("A layer's share in the plan is negative or not a number");
        }
        sum += s;
    }
    const uint64_t least_bytes = split_layout(shape, split).bytes(shape);
    uint64_t tops_bytes = 0;
    for (Layer l = 0; l < shape.n_layer; l++) {
        tops_bytes += top_bytes(shape, l, split.top_share[l]) * uint64_t(split.n_top[l]);
    }
    // Layers that cannot do with their share take their least, and the others divide the rest.
    double rest_bytes = double(budget_bytes) - double(least_bytes - tops_bytes);
    std::vector<bool> fixed(size_t(shape.n_layer), false);
    for (bool again = true; again;) {
        again = false;
        for (Layer l = 0; l < shape.n_layer; l++) {
            const auto top = double(top_bytes(shape, l, split.top_share[l]));
            const double part = sum > 0 ? share[l] / sum * rest_bytes : 0;
            const double n_slot = top > 0 ? std::floor(part / top * (1 + 1e-12)) : 0;
            if (fixed[l] || (n_slot > shape.n_expert_used && n_slot < shape.n_expert)) {
                continue;
            }
            const bool most = n_slot >= shape.n_expert;
            split.n_top[l] = most ? shape.n_expert : shape.n_expert_used;
            rest_bytes -= double(split.n_top[l]) * top;
            sum -= share[l];
            fixed[l] = again = true;
        }
    }
    for (Layer l = 0; l < shape.n_layer; l++) {
        if (!fixed[l]) {
            const auto top = double(top_bytes(shape, l, split.top_share[l]));
            split.n_top[l] = int32_t(share[l] / sum * rest_bytes / top * (1 + 1e-12));
        }
    }
}

}  // namespace
