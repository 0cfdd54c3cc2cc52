// The next layer's router applied to this layer's MoE input (MoEpic, Eq. 3). Needs no training:
// the residual stream changes little from one layer to the next.
#pragma once

#include "predictor.h"

namespace outrider {

class NextRouter final : public Predictor {
  public:
    // routers[layer]: n_expert rows of n_embd values, or empty where a layer's router is unknown.
    // The memory must
    // outlive the predictor.
    NextRouter(int32_t n_embd, int32_t n_expert, std::vector<std::span<const float>> routers);

    // With several tokens every token votes for its best experts with its scores; at most
    // max_token of them, evenly spaced, are asked.
    Forecast predict(Layer layer, std::span<const float> input, int32_t n_token, int32_t n_predict) override;

  private:
    static constexpr int32_t max_token = 16;

    int32_t n_embd_;
    int32_t n_expert_;
    std::vector<std::span<const float>> routers_;
    std::vector<float> scores_;  // [n_expert]
    std::vector<float> votes_;   // [n_expert]
};

}  // namespace outrider
