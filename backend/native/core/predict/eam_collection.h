// Past requests' use of experts (MoE-Infinity, sections 4.3 and 4.5, appendix B.1).
#pragma once

#include <span>

#include "core/types.h"

namespace outrider {

// Expert activation matrices (EAMs): how many tokens each expert of each layer got in a past request.
class EamCollection {
  public:
    EamCollection(int32_t n_layer, int32_t n_expert, int32_t capacity);

    int32_t size() const { return n_; }
    // When full, evicts the EAM most similar to the new one (appendix B.1).
    void add(std::span<const float> eam);  // [n_layer * n_expert]

    // A layer's row of one EAM.
    const float * row(int32_t which, Layer layer) const {
        return &eams_[(size_t(which) * n_layer_ + layer) * n_expert_];
    }
    // One cell of all EAMs: [capacity].
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
    std::vector<float> cells_;  // [layer][expert][which]: to compare all at once
    std::vector<double> squares_;
};

}  // namespace outrider
