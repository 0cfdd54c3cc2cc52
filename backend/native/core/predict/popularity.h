// The experts that each layer chose most often so far: the baseline of all predictors.
#pragma once

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

// Numbers: online, 1 (the default): learns from what it sees, 0: does not.
// Arrays: counts [n_layer][n_expert], the initial counts; optional, not negative.
// When a pass begins it forecasts all layers.
class Popularity final : public Predictor {
  public:
    Popularity(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void pass_began(Phase phase, std::span<const int32_t> tokens, Forecasts & out) override;
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    bool online_;
    std::vector<float> counts_;  // [layer * n_expert + expert]
};

}  // namespace outrider
