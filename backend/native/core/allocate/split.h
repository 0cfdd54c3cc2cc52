// Shared by the allocations: budgets in bytes, and layouts of cut experts. Each layer has its own slots for tops;
// bottoms are not kept and pass through slots that all layers of a kind share (MoEpic, section 3.1: "into VRAM's
// buffer").
#pragma once

#include <functional>
#include <string>

#include "core/layout.h"

namespace outrider {

// Return the bytes of `n_slot` experts of every layer.
uint64_t slot_bytes(const Shape & shape, int32_t n_slot);

// Return [layer]: the index of the layer's kind, in order of appearance.
std::vector<int32_t> kinds_of(const Shape & shape);

// Return the nearest share at which the layer's tensors may be cut; above 0 if `share` is. An expert that cannot be cut
// is all top, or all bottom for a share of 0.
double nearest_share(const Shape & shape, Layer layer, double share);

// Return the bytes of the top `share` of one expert.
uint64_t top_bytes(const Shape & shape, Layer layer, double share);

struct Split {
    std::vector<int32_t> n_top;  // [layer]: slots of whole experts or of tops
    std::vector<double> top_share;  // [layer]: from nearest_share()
    int32_t n_bottom = 0;  // maximum slots for bottoms, in each kind with bottoms
};

// A kind gets at least the bottom slots that computation needs: one, or n_expert_used if it keeps no tops. REQUIRES:
// n_top >= n_expert_used if top_share is above 0.
Layout split_layout(const Shape & shape, const Split & split);

// Return bottom slots for the layer in progress and the next one. With MoEpic's initial theta of 0.5 this is the buffer
// of section 4.1, K whole experts.
inline int32_t usual_n_bottom(const Shape & shape) { return 2 * shape.n_expert_used; }

// Return the number of bottom slots, up to `n_bottom`, that fit into `budget_bytes` beside the tops.
int32_t fitting_n_bottom(const Shape & shape, Split split, uint64_t budget_bytes);

// Give out top slots one by one while they fit into `budget_bytes`: each to the layer with the largest positive
// `worth(layer, n)` of its n-th slot, the first such layer.
using Worth = std::function<double(Layer layer, int32_t n_top)>;
void hand_out(const Shape & shape, uint64_t budget_bytes, const Worth & worth, Split & split);

// Throws std::invalid_argument, a sentence that begins with `what`, unless value is 0 to 1.
void require_share(double value, const std::string & what);

}  // namespace outrider
