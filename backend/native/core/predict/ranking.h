// From scores to a forecast.
#pragma once

#include <algorithm>

#include "predictor.h"

namespace outrider {

// As many experts as a forecast shall hold: 0 means as many as a token uses.
inline int32_t forecast_size(const Shape & shape, int32_t n_predict) {
    return std::min(n_predict > 0 ? n_predict : shape.n_expert_used, shape.n_expert);
}

// The `n` experts with the highest scores, the highest first, of equals the lowest index; what is
// not a finite number is the lowest. Only scores above `floor`.
Forecast best_of(Layer layer, std::span<const float> scores, int32_t n, float floor);
Forecast best_of(Layer layer, std::span<const float> scores, int32_t n);

// The layer that is `stride` after `layer`: of this pass, or, after the last one, of the next.
// `none` where that is more than one pass away.
inline Layer layer_after(Layer layer, int32_t stride, int32_t n_layer) {
    const Layer target = layer + stride;
    return target < n_layer ? target : target - n_layer <= layer ? target - n_layer : none;
}

// Which tokens of a pass are asked: all of a few, or some of many, evenly spaced, the last among them.
class Asked {
  public:
    static constexpr int32_t most = 16;

    explicit Asked(int32_t n_token) : n_token_(n_token), n_(n_token < most ? n_token : most) {}
    int32_t size() const { return n_; }
    int32_t operator[](int32_t i) const { return int32_t(n_token_ - 1 - int64_t(i) * n_token_ / n_); }

  private:
    int32_t n_token_;
    int32_t n_;
};

// What a pass of several tokens will need: every asked token votes for the experts with exp(score -
// its best score), so that none outweighs the others.
class Poll {
  public:
    explicit Poll(int32_t n_expert) : scores_(n_expert), votes_(n_expert) {}

    // score(token, scores) fills one token's scores. Returns votes, or one token's own scores, whose
    // differences exp() might flush to zero.
    template <typename Score>
    std::span<const float> ask(const Asked & tokens, Score && score) {
        clear();
        for (int32_t i = 0; i < tokens.size(); i++) {
            score(tokens[i], scores_.data());
            count(tokens.size() > 1);
        }
        return tokens.size() > 1 ? votes_ : scores_;
    }

  private:
    void clear();
    void count(bool vote);

    std::vector<float> scores_;  // [n_expert]
    std::vector<float> votes_;   // [n_expert]
};

}  // namespace outrider
