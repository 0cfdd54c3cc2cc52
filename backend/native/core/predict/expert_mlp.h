// DuoServe-MoE's ExpertMLP (section 4): a deep network that sees the experts that a token chose in all layers before,
// the popularity of the next layer's experts, and their affinity to the last choice.
#pragma once

#include "core/predict/matrix.h"
#include "core/predict/ranking.h"

namespace outrider {

// One network for all layers. After layer l - 1 of a decode pass of one token it predicts layer l. It predicts nothing
// in prefill (section 5). Its input, of (n_layer - 1) * n_expert_used + 2 * n_expert values:
//   history: the chosen experts of the layers 0 .. l - 1 in the router's order, each as (index + 1) /
//     n_expert; 0 for those to come;
//   popularity of layer l (Eq. 2);
//   affinity: the mean of the rows of layer l's affinity matrix (Eq. 3) of the experts chosen in l - 1
//     (section 5.1 calls it a vector; 0 for rows that were never seen).
// Number: bytes, 1: keeps w0, w1, ... in memory as bytes with a factor for each row; by default 0.
// Arrays: w0, w1, ... [outputs][inputs] and b0, b1, ... [outputs], any number of layers with ReLU between them (the
// paper has seven, of hidden widths from 2048 down to 64; fold batch norm in, since it follows the product directly);
// popularity [n_layer][n_expert]; affinity [n_layer][n_expert][n_expert], whose [l][i][j] is
// P(j in layer l | i in layer l - 1); [0] is unused.
class ExpertMlp final : public Predictor {
  public:
    ExpertMlp(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void pass_began(Phase phase, std::span<const int32_t> tokens, Forecasts & out) override;
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    using Weights = std::shared_ptr<const Array>;
    struct Product {
        Matrix weights;
        Weights bias;
    };

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_expert_used_;
    int32_t n_predict_;
    std::vector<Product> products_;
    Weights popularity_;
    Weights affinity_;
    int32_t n_known_ = 0;         // layers of this pass whose choice is in the history; none: do not predict
    std::vector<float> input_;    // history, popularity, affinity
    std::vector<float> values_, next_;
};

}  // namespace outrider
