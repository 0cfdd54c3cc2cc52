// A small network per layer that learned from traces which experts a later layer chooses (ProMoE, sections 4.3
// and 4.4): a two-layer MLP on the layer's MoE input, computed on the CPU. The last layers predict the first ones of
// the next token.
#pragma once

#include "core/predict/matrix.h"
#include "core/predict/ranking.h"

namespace outrider {

// Numbers: stride, 1 or 2, or 0 (the default): every stride that has arrays;
// activation, 0: ReLU, 1: SiLU, 2: GELU (exact); bytes, 1: keeps w1, w2 and skip* in memory as
// bytes with a factor for each row, to read less memory; by default 0.
//
// Arrays "l<layer>.s<stride>.<name>": the network of `layer` for the layer `stride` later. With x the MoE input
// [n_embd], h the hidden width and r any rank,
//     hidden = activation(w1 x + b1 + sum of hidden_chosen[e] + sum of hidden_before[e])
//     scores = w2 hidden + b2 + router * (R x) + skip x + skip_up (skip_down x)
//              + sum of chosen[e] + sum of before[e]
// of shapes w1 [h][n_embd], b1 [h], w2 [n_expert][h], b2 [n_expert], router [n_expert],
// skip [n_expert][n_embd], skip_down [r][n_embd], skip_up [n_expert][r], chosen and before
// [n_expert][n_expert], hidden_chosen and hidden_before [n_expert][h]. All are optional;
// absent ones are left out of the sum. R is the later layer's own router, so router = 1 alone is the next-router
// predictor. `chosen` sums over the experts that `layer` chose for the token, `before` over those that the later layer
// chose for the token before it (left out in passes of several tokens, where it is unknown yet). A layer without arrays
// is not predicted.
//
// The last layers do not know the next token, so the first layers can be forecast again when a pass begins.
// "token.rows" [n_vocab][r] has a row for every token id, and arrays "t<layer>.<name>" are the network of that layer
// with x = that row, [r] instead of [n_embd]. They have no router, chosen and hidden_chosen, but w1_last [h][n_embd]:
// its product with the last layer's MoE input of the token before, where known, is added before the activation. With a
// stride, the networks of the layers below it are used.
class Learned final : public Predictor {
  public:
    Learned(const Spec & spec, const Surroundings & around, int32_t n_predict);

    bool wants_input() const override { return true; }
    void request_began() override;
    void pass_began(Phase phase, std::span<const int32_t> tokens, Forecasts & out) override;
    void routed(const Routing & routing, Forecasts & out) override;
    void gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) override;

  private:
    using Weights = std::shared_ptr<const Array>;
    struct Network {
        Layer target = none;
        Matrix w1, w1_last, w2, skip, skip_down, skip_up;
        Weights b1, b2, router, chosen, before, hidden_chosen, hidden_before;
        std::span<const float> own_router{};  // of the target
    };

    Network load(class SpecReader & settings, const std::string & prefix, int64_t n_input) const;
    Network load(class SpecReader & settings, const Surroundings & around, Layer layer, int32_t stride) const;
    bool load_tokens(class SpecReader & settings, int32_t stride);
    void score(Network & network, const float * x, std::span<const Expert> chosen, std::span<const Expert> before,
               float * scores);

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_embd_;
    int32_t n_predict_;
    int32_t activation_ = 0;
    bool bytes_ = false;
    std::vector<std::vector<Network>> networks_;  // [layer], the nearest target first
    Weights token_rows_;
    std::vector<Network> of_token_;  // of the first layers, from the token's id
    std::vector<float> last_input_;  // [n_embd], of the last layer and token; or empty
    std::vector<float> no_row_;  // [r], of an unknown token id
    std::vector<std::vector<Expert>> last_;  // [layer]: what it chose for the last token
    Routing present_{};  // ids_ of the layer routed last
    std::vector<Expert> ids_;
    std::vector<float> hidden_;
    std::vector<float> low_rank_;
    std::vector<float> routed_scores_;
    Poll poll_;
};

}  // namespace outrider
