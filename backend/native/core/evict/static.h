// A fixed set (ProMoE, section 7.1: Static): the experts that are used most, by a given table, or by the
// first tokens. Others are the next to leave as soon as they are computed. Until the warm-up is over it
// is LFU.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Static final : public Eviction {
  public:
    // Number: warmup (64), tokens per layer that are counted; the pass that reaches it counts whole.
    // Array: popularity [n_layer, n_expert], in its place.
    Static(const Spec & spec, const Shape & shape);

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double n_warmup_;
    std::vector<double> n_token_;  // [layer]: counted so far
    PerExpert<double> count_;
};

}  // namespace outrider
