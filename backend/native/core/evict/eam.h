// MoE-Infinity's eviction (section 4.7, Algorithm 1): the worth is (p + epsilon) * (1 - layer / L). Among equals the
// early layers stay: they are needed first, and nothing can be prefetched for them. p is the predicted share of a
// layer's activations (Algorithm 1, line 12, divides by the row's sum): from the last forecast for the layer in this
// request or, without one, from the request's own activations. Without scores all experts of a forecast are equal. The
// paper gives no epsilon; it only has to order experts with p = 0.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

namespace outrider {

class EamEviction final : public Eviction {
  public:
    // Number: epsilon (1e-6).
    EamEviction(const Spec & spec, const Shape & shape);

    void request_began() override;
    void routed(const Routing & routing, std::span<const Demand> demands) override;
    void forecast(const Forecast & forecast) override;
    double keep(Layer layer, Part, Expert expert) const override;

  private:
    struct Row {
        double sum = 0;           // of the request's own activations
        double forecast_sum = 0;  // of the last forecast's scores; 0: there is none
    };
    int32_t n_layer_;
    double epsilon_;
    PerExpert<double> own_;
    PerExpert<double> forecast_;
    std::vector<Row> rows_;  // [layer]
};

}  // namespace outrider
