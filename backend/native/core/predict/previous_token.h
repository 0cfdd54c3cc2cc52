// Predicts that a layer chooses for the next token what it chose for the last one.
#pragma once

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

// No numbers, no arrays. A routed layer gives a forecast for itself in the next pass: the last token's experts, in the
// order of the router's weights.
class PreviousToken final : public Predictor {
  public:
    PreviousToken(const Spec & spec, const Surroundings & around, int32_t n_predict);

    bool wants_weights() const override { return true; }
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    int32_t n_predict_;
};

}  // namespace outrider
