// What past requests used (MoE-Infinity, sections 4.3 and 4.5, appendix B.1).
#pragma once

#include <span>

#include "../types.h"

namespace outrider {

// Past requests' expert activation matrices (EAMs): how many tokens each expert of each layer got.
class EamCollection {
  public:
    EamCollection(int32_t n_layer, int32_t n_expert, int32_t capacity);

    int32_t size() const { return n_; }
    // When it is full, the one that is most similar to the new one leaves (appendix B.1).
    void add(std::span<const float> eam);  // [n_layer * n_expert]

    // One of the matrices: a layer's row.
    const float * row(int32_t which, Layer layer) const {
        return &eams_[(size_t(which) * n_layer_ + layer) * n_expert_];
    }
    // The same cell of all matrices beside each other, as many as there may be: [capacity].
    const float * cells(Layer layer, Expert expert) const {
        return &cells_[(size_t(layer) * n_expert_ + expert) * capacity_];
    }
    // Squares of all cells of the layers 0 .. layer: [capacity].
    const double * squares(Layer layer) const { return &squares_[size_t(layer) * capacity_]; }

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t capacity_;
    int32_t n_ = 0;
    std::vector<float> eams_;   // [which][layer][expert]
    std::vector<float> cells_;  // [layer][expert][which]: so that all are compared at once
    std::vector<double> squares_;
};

}  // namespace outrider
