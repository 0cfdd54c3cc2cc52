// Whether a device should run ahead of a layer's choice (live/pass/pass_pieces.cc). It gains a stop where all chosen
// experts are there, and computes in vain where one is missing.
#pragma once

#include <vector>

#include "core/types.h"

namespace outrider {

class AheadRule {
  public:
    explicit AheadRule(int32_t n_layer) : right_(size_t(n_layer), 1.0) {}

    bool runs(Layer layer) const { return right_[size_t(layer)] >= min_right; }
    // Of a token: whether all experts that the layer chose were there when it could have been run ahead.
    void judge(Layer layer, bool right) {
        double & share = right_[size_t(layer)];
        share += weight * (double(right) - share);
    }

  private:
    static constexpr double weight = 1.0 / 16;  // of the last token
    // The share of tokens that pays for the others. Simulated (docs/devices-shown.md).
    static constexpr double min_right = 0.75;

    std::vector<double> right_;  // [layer]: share of the last tokens, the later ones counting more
};

}  // namespace outrider
