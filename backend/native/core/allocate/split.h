// What the allocations share: budgets in bytes, and layouts of cut experts. Each layer has its own slots for tops;
// bottoms are not kept and pass through slots that all layers of a kind share (MoEpic, section 3.1: "into VRAM's
// buffer").
#pragma once

#include <functional>
#include <string>

#include "core/layout.h"

namespace outrider {

// Bytes of a cache rate (share of all experts' bytes). Above 1 counts as 1. Throws std::invalid_argument if it is
// negative or not a number.
uint64_t rate_bytes(const Shape & shape, double cache_rate);

// [layer]: index of the layer's kind, numbered in the order in which they appear.
std::vector<int32_t> kinds_of(const Shape & shape);

// The cut nearest to `share` that the layer's tensors allow; above 0 for a share above 0. An expert that cannot be cut
// is all top, or for a share of 0 all bottom.
double nearest_share(const Shape & shape, Layer layer, double share);

// Bytes of the top `share` of one expert.
uint64_t top_bytes(const Shape & shape, Layer layer, double share);

struct Split {
    std::vector<int32_t> n_top;     // [layer]: slots of whole experts or of tops
    std::vector<double> top_share;  // [layer]: as nearest_share() gives it
    int32_t n_bottom = 0;           // slots for bottoms in each kind that has any, at most
};

// REQUIRES: n_top >= n_expert_used wherever top_share is above 0. A kind has at least the bottoms
// without which it cannot compute: one, or where nothing of an expert is kept, those of one token.
Layout split_layout(const Shape & shape, const Split & split);

// The bottoms of the layer in progress and of the next, while prefetched. At MoEpic's first theta of
// 0.5 this is the buffer of section 4.1, K whole experts.
inline int32_t usual_n_bottom(const Shape & shape) { return 2 * shape.n_expert_used; }

// At most `n_bottom` slots, as many as fit into `budget_bytes` beside the tops.
int32_t fitting_n_bottom(const Shape & shape, Split split, uint64_t budget_bytes);

// Gives top slots one by one, each to the layer where `worth(layer, n)`, of its n-th slot, is the
// greatest, while they fit into `budget_bytes` and it is above 0; of equals, to the first layer.
using Worth = std::function<double(Layer layer, int32_t n_top)>;
void hand_out(const Shape & shape, uint64_t budget_bytes, const Worth & worth, Split & split);

// Throws std::invalid_argument, a sentence that begins with `what`, unless value is 0 to 1.
void require_share(double value, const std::string & what);

}  // namespace outrider
