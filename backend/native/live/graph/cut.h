// Finds out whether a layer's experts can be computed in two parts: the first rows of gate and up with the first
// columns of down, and the rest. Between these mat-muls only element-wise operations are allowed, and after them only
// linear ones, so that the parts' outputs add up to the expert's (MoEpic, section 3.1).
#pragma once

#include <map>

#include "ggml.h"

namespace outrider {

class CutFinder {
  public:
    // See a node of the layer's segment, in the graph's order, before it is changed. `uses_experts`: its src[0] is an
    // expert tensor.
    void see(const ggml_tensor * node, bool uses_experts);

    // Return the number of equal pieces into which the experts' hidden width may be cut; 1: no cut. A piece is a block
    // of down's type, so that a cut never divides a block.
    int32_t n_cut() const;
    // Return the expert tensor with hidden-width columns, or null.
    const ggml_tensor * down() const { return down_; }

  private:
    enum class Side { hidden, output };  // before and after the down mat-mul

    bool see_mat_mul(const ggml_tensor * node);
    bool see_other(const ggml_tensor * node);

    std::map<const ggml_tensor *, Side> side_of_;
    const ggml_tensor * down_ = nullptr;
    int64_t n_hidden_ = 0;
    bool possible_ = true;
};

}  // namespace outrider
