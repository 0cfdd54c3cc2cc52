// Slots and cuts of each layer from a given plan.
//
// Arrays of the spec, each [n_layer]: "n_slot", the layers' slots, or "share", the weights by which
// the memory is divided among the layers; "top_share" (MoEpic's theta), by default
// 1. Number "n_bottom": slots for bottoms in each kind, by default 2 * n_expert_used.
// Every layer has n_expert_used to n_expert slots. A plan by "n_slot" that exceeds the memory is
// refused, not changed.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/allocate/registry.h"
#include "core/allocate/split.h"

namespace outrider {
namespace {

std::span<const float> values(const Spec & spec, const std::string & key, size_t n) {
    const Array & array = spec.array(key);
    if (array.values.size() != n) {
        throw std::invalid_argument("The array " + key + " of the allocation does not fit the model");
    }
    const auto is_bad = [](float v) { return !(v >= 0) || !std::isfinite(v); };
    if (std::any_of(array.values.begin(), array.values.end(), is_bad)) {
        throw std::invalid_argument("The array " + key + " of the allocation has values that are no amounts");
    }
    return array.values;
}

Split least(const Spec & spec, const Shape & shape, uint64_t budget_bytes) {
    const double most = double(shape.n_layer) * shape.n_expert;
    const double n_bottom = std::min(spec.number("n_bottom", usual_n_bottom(shape)), most);
    if (!(n_bottom >= 1)) {
        throw std::invalid_argument("The number n_bottom of the allocation is below 1");
    }
    Split split{std::vector<int32_t>(size_t(shape.n_layer), shape.n_expert_used), {}, int32_t(n_bottom)};
    std::span<const float> shares;
    if (spec.has("top_share")) {
        shares = values(spec, "top_share", size_t(shape.n_layer));
    }
    for (Layer l = 0; l < shape.n_layer; l++) {
        const double share = shares.empty() ? spec.number("top_share", 1) : double(shares[size_t(l)]);
        require_share(share, "The number top_share of the allocation");
        split.top_share.push_back(nearest_share(shape, l, share));
    }
    split.n_bottom = fitting_n_bottom(shape, split, budget_bytes);
    return split;
}

}  // namespace

Layout allocate_planned(const Spec & spec, const Shape & shape, int32_t n_slot) {
    const uint64_t budget_bytes = slot_bytes(shape, n_slot);
    Split split = least(spec, shape, budget_bytes);
    if (spec.has("n_slot")) {
        const auto planned = values(spec, "n_slot", size_t(shape.n_layer));
        for (Layer l = 0; l < shape.n_layer; l++) {
            const float n = std::clamp(planned[size_t(l)], float(shape.n_expert_used), float(shape.n_expert));
            split.n_top[l] = int32_t(n);
        }
        split.n_bottom = fitting_n_bottom(shape, split, budget_bytes);
        if (split_layout(shape, split).bytes(shape) > budget_bytes) {
            throw std::invalid_argument("The planned slots take more memory than the cache has");
        }
        return split_layout(shape, split);
    }
    const auto share = values(spec, "share", size_t(shape.n_layer));
    const auto worth = [&](Layer l, int32_t n) {
        return double(share[size_t(l)]) / n / double(top_bytes(shape, l, split.top_share[l]));
    };
    hand_out(shape, budget_bytes, worth, split);
    return split_layout(shape, split);
}

}  // namespace outrider
