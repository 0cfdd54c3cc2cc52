// From scores to a forecast.
#pragma once

#include <algorithm>

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

// Experts in a forecast; 0: as many as a token uses.
inline int32_t forecast_size(const Shape & shape, int32_t n_predict) {
    return std::min(n_predict > 0 ? n_predict : shape.n_expert_used, shape.n_expert);
}

// The `n` experts with the highest scores above `floor`, the highest first, among equals the lowest index. A score that
// is not finite is the lowest.
Forecast best_of(Layer layer, std::span<const float> scores, int32_t n, float floor);
Forecast best_of(Layer layer, std::span<const float> scores, int32_t n);

// The experts of a layer's choices, each once, with the number of tokens as scores: those of most tokens first, then
// the first chosen. `counts`: [n_expert], 0 before and after.
Forecast chosen_by(Layer layer, std::span<const Expert> choices, std::vector<int32_t> & counts);

// The layer `stride` after `layer`, in this pass or the next; `none` if it is farther away.
inline Layer layer_after(Layer layer, int32_t stride, int32_t n_layer) {
    const Layer target = layer + stride;
    return target < n_layer ? target : target - n_layer <= layer ? target - n_layer : none;
}

// The tokens of a pass that are asked: all of a few; of many, evenly spaced ones with the last among them.
class Asked {
  public:
    static constexpr int32_t most = 32;

    explicit Asked(int32_t n_token) : n_token_(n_token), n_(n_token < most ? n_token : most) {}
    int32_t size() const { return n_; }
    int32_t operator[](int32_t i) const { return int32_t(n_token_ - 1 - int64_t(i) * n_token_ / n_); }

  private:
    int32_t n_token_;
    int32_t n_;
};

// The forecast of a pass. For one token: the n experts with the highest scores. For several: every expert among the n
// best of an asked token, in the order of votes; each token votes with exp(score - its best score), so that none
// outweighs the others.
class Poll {
  public:
    explicit Poll(int32_t n_expert) : scores_(n_expert), votes_(n_expert), named_(n_expert) {}

    // score(token, scores) fills one token's scores.
    template <typename Score>
    Forecast ask(Layer layer, const Asked & tokens, int32_t n, Score && score) {
        clear();
        for (int32_t i = 0; i < tokens.size(); i++) {
            score(tokens[i], scores_.data());
            if (tokens.size() > 1) {
                vote(n);
            }
        }
        return tokens.size() > 1 ? result(layer, n) : best_of(layer, scores_, n);
    }

  private:
    void clear();
    void vote(int32_t n);
    Forecast result(Layer layer, int32_t n);

    std::vector<float> scores_;  // [n_expert], of one token
    std::vector<float> votes_;  // [n_expert]
    std::vector<uint8_t> named_;  // [n_expert]: among the best of an asked token
};

// Turn a router's products into the scores by which the model chooses. Without biases they stay as they are.
void choose_by(const RouterBias & bias, std::span<float> scores);

// The routers of the surroundings. Throws std::invalid_argument if they are absent or of a wrong size.
std::vector<std::span<const float>> known_routers(const Spec & spec, const Surroundings & around);

}  // namespace outrider
