// A later layer's router applied to this layer's MoE input (MoEpic, Eq. 3). Needs no training: the
// residual stream changes little from one layer to the next.
#pragma once

#include "core/predict/ranking.h"
#include "core/spec.h"

namespace outrider {

// Numbers: stride, 1 (as in the paper) or 2.
// The first layers are predicted from the last layer's input of the previous token (section 4); after a pass of several
// tokens, of its last one. Layers with an unknown router are not predicted.
class NextRouter final : public Predictor {
  public:
    NextRouter(const Spec & spec, const Surroundings & around, int32_t n_predict);

    bool wants_input() const override { return true; }
    void gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) override;

  private:
    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_embd_;
    int32_t n_predict_;
    int32_t stride_;
    std::vector<std::span<const float>> routers_;
    Poll poll_;
};

// The routers of the surroundings. Throws std::invalid_argument if they are absent or of a wrong size.
std::vector<std::span<const float>> known_routers(const Spec & spec, const Surroundings & around);

}  // namespace outrider
