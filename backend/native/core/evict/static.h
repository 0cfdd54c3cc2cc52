// A fixed set (ProMoE, section 7.1: Static): the most used experts, by a given table or by the first tokens. Others
// leave as soon as they are computed. During the warm-up it is LFU.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

namespace outrider {

class Static final : public Eviction {
  public:
    // Number: warmup (64), tokens counted per layer; the pass that reaches it counts in full.
    // Array: popularity [n_layer, n_expert], instead of counting.
    Static(const Spec & spec, const Shape & shape);

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double n_warmup_;
    std::vector<double> n_token_;  // [layer]: counted so far
    PerExpert<double> count_;
};

}  // namespace outrider
