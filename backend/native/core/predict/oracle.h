// Predictors for studies, which know the future: the upper bound, and one of a set accuracy.
#pragma once

#include "core/predict/foresight.h"
#include "core/spec_reader.h"

namespace outrider {

// The future: the experts of most tokens among those that a layer will choose, n_predict for each token.
// Number: lookahead; by default a whole pass, n_layer.
class Oracle final : public Predictor {
  public:
    Oracle(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void pass_began(Phase, std::span<const int32_t>, Forecasts & out) override { tell(foresight_.pass_began(), out); }
    void routed(const Routing & routing, Forecasts & out) override { tell(foresight_.routed(routing.layer), out); }

  private:
    void tell(Foresight::Due due, Forecasts & out);

    SpecReader settings_;
    size_t n_expert_used_;
    size_t n_predict_;
    Foresight foresight_;
};

// n_predict experts of a token, each right with the probability `accuracy`, by a hash of seed, pass, layer, token and
// rank. When all right ones are named the others are wrong, and vice versa. In a pass of several tokens each asked
// token names as many experts as it uses; the experts named most often come first. Numbers: accuracy, 0 .. 1 (the
// default); seed, a whole number, by default 0; lookahead, by default 1.
class SetAccuracy final : public Predictor {
  public:
    SetAccuracy(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void pass_began(Phase, std::span<const int32_t>, Forecasts & out) override { tell(foresight_.pass_began(), out); }
    void routed(const Routing & routing, Forecasts & out) override { tell(foresight_.routed(routing.layer), out); }

  private:
    void tell(Foresight::Due due, Forecasts & out);
    Forecast guess(int64_t at);
    void guess(std::span<const Expert> right, int32_t n, uint64_t state);

    SpecReader settings_;
    int32_t n_expert_;
    int32_t n_expert_used_;
    int32_t n_predict_;
    double accuracy_;
    uint64_t seed_;
    Foresight foresight_;
    std::vector<Expert> wrong_, named_;  // of one token
    std::vector<float> votes_;           // [n_expert]
};

}  // namespace outrider
