// The same number of slots for every layer: from `n_expert_used`, so that one token fits, to `n_expert`.
//
// Number of the spec: top_share (MoEpic's theta), by default 1. Below 1 only tops are kept, and bottoms get buffers. It
// is rounded to a cut that the layers allow. If all tops fit, theta is at least V / (N * expert), since at most N
// experts can be kept (MoEpic, section 3.4.1). 0 keeps nothing: prefetching only.
#include <algorithm>

#include "core/allocate/registry.h"
#include "core/allocate/split.h"

namespace outrider {
namespace {

// As many tops in every layer as fit beside the bottoms.
Split fill(const Shape & shape, uint64_t budget_bytes, double top_share) {
    Split split{std::vector<int32_t>(size_t(shape.n_layer), shape.n_expert_used), {}, usual_n_bottom(shape)};
    uint64_t row_bytes = 0;  // of one more slot in every layer
    for (Layer l = 0; l < shape.n_layer; l++) {
        split.top_share.push_back(nearest_share(shape, l, top_share));
        row_bytes += top_bytes(shape, l, split.top_share[l]);
    }
    split.n_bottom = fitting_n_bottom(shape, split, budget_bytes);
    const uint64_t least_bytes = split_layout(shape, split).bytes(shape);
    if (row_bytes > 0 && least_bytes < budget_bytes) {
        const uint64_t n_more = (budget_bytes - least_bytes) / row_bytes;
        const auto n_top = int32_t(std::min(uint64_t(shape.n_expert), shape.n_expert_used + n_more));
        split.n_top.assign(size_t(shape.n_layer), n_top);
    }
    return split;
}

Layout even(const Shape & shape, int32_t n_slot, double top_share) {
    require_share(top_share, "top_share");
    const uint64_t budget_bytes = slot_bytes(shape, n_slot);
    Split split = fill(shape, budget_bytes, top_share);
    int32_t n_cut = 1;
    for (Layer l = 0; l < shape.n_layer; l++) {
        n_cut = std::max(n_cut, shape.cuts(l));
    }
    for (int32_t cut = 1; cut <= n_cut && top_share > 0; cut++) {
        const double share = double(cut) / n_cut;
        if (share <= top_share) {
            continue;
        }
        Split larger = fill(shape, budget_bytes, share);
        if (larger.n_top[0] < shape.n_expert || split_layout(shape, larger).bytes(shape) > budget_bytes) {
            break;
        }
        split = std::move(larger);
    }
    return split_layout(shape, split);
}

}  // namespace

Layout allocate_uniform(const Spec & spec, const Shape & shape, int32_t n_slot) {
    return even(shape, n_slot, spec.number("top_share", 1));
}

// Theta = 0.5 (MoEpic, Algorithm 1, line 4), until the configurator has a plan (moepic_configurator.h).
Layout allocate_moepic(const Spec & spec, const Shape & shape, int32_t n_slot) {
    return spec.has("n_slot") ? allocate_planned(spec, shape, n_slot)
                              : even(shape, n_slot, spec.number("top_share", 0.5));
}

}  // namespace outrider
