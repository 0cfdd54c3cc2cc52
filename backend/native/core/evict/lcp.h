// MoEpic's cache priority (section 3.3, Eq. 4): mu * rho^(nu / omega), with mu an expert's activations
// and nu the tokens since the last one. The lowest leaves.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

namespace outrider {

class Lcp final : public Eviction {
  public:
    // Numbers: omega (128), tokens; rho (0.25).
    Lcp(const Spec & spec, const Shape & shape);

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    // The logarithm of the priority: same order, no overflow or underflow.
    double keep(Layer layer, Part, Expert expert) const override {
        return log_count_.at(layer, expert) + log_decay_ * (clock_[size_t(layer)] - last_.at(layer, expert));
    }

  private:
    double log_decay_;
    PerExpert<double> count_;
    PerExpert<double> log_count_;
    PerExpert<double> last_;     // the layer's clock at the last activation
    std::vector<double> clock_;  // [layer], in tokens
};

}  // namespace outrider
