// Whether a layer's experts can be computed in two parts: the first rows of gate and up with the
// first columns of down, and the rest. Between them only operations that act on every value by
// itself may lie, and behind them only linear ones, so that the parts' outputs add up to the
// expert's (MoEpic, section 3.1).
#pragma once

#include <map>

#include "ggml.h"

namespace outrider {

class CutFinder {
  public:
    // A node of the layer's segment, in the graph's order. `uses_experts`: its src[0] is an expert
    // tensor. To be told before anybody changes the node.
    void see(const ggml_tensor * node, bool uses_experts);

    // Into how many equal pieces the experts' hidden width may be cut; 1: not at all. A piece is a
    // block of down's type, so that a cut never divides what is quantised together.
    int32_t n_cut() const;
    // The expert tensor whose columns, not rows, are the hidden width; null where there is none.
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
