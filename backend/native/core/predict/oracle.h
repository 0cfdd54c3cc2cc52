// Predictors for studies, which know the future: the ceiling, and one that is right as often as asked.
#pragma once

#include "../spec_reader.h"
#include "foresight.h"

namespace outrider {

// What will be: of the experts that a layer will choose those with most tokens, n_predict for each token.
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

// n_predict experts of a token, of which each is right with the probability `accuracy`, by a hash of seed, pass,
// layer, token and rank. Once all that are right were named the others are wrong, and the other way round. Of several
// tokens those that are asked name as many as they use, and what most of them named comes first.
// Numbers: accuracy, 0 .. 1 (the default); seed, a whole number, by default 0; lookahead, by default 1.
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
