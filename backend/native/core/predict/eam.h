// Request-level expert activation matching (MoE-Infinity, sections 4.3 and 4.5, appendix B.1): predicts what past
// requests that began like this one used later.
#pragma once

#include "core/predict/eam_collection.h"
#include "core/predict/ranking.h"
#include "core/spec.h"

namespace outrider {

// The EAM of the present pass (of the layers routed so far) is compared with the same layers of past requests' EAMs of
// the same phase, by cosine. The most similar ones are summed, each layer's row is divided by its sum, and row i weighs
// 1 - (i - l) / L, where l is the present layer. These are the scores of all later layers. Experts without a score are
// not forecast.
// Numbers: capacity, the past requests of each phase, by default 120; matches, the number of EAMs that are summed, by
// default 1 (the paper says "several"); own, 1: this request so far counts as a past one too, 0 (the default): no.
// Arrays: prefill and decode [n][n_layer][n_expert]: initial EAMs; optional, not negative.
class Eam final : public Predictor {
  public:
    Eam(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void request_began() override;
    void pass_began(Phase phase, std::span<const int32_t> tokens, Forecasts & out) override;
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    void see(Layer layer);
    void match(Layer layer);
    void consider(double dot, double square, int32_t which);
    void forecast(Layer present, Forecasts & out);
    Forecast sum_up(Layer layer);

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    size_t n_match_;
    bool own_;
    std::array<EamCollection, 2> past_;  // [phase]
    std::array<std::vector<float>, 2> request_;  // [phase]: this request's EAM
    std::array<std::vector<double>, 2> own_squares_;  // [phase][layer]: squares of the cells of one layer
    size_t phase_ = 0;
    std::vector<float> counts_;  // [n_expert]: the present layer's row of the pass's EAM
    std::vector<double> dots_;  // [past EAM]: product of its cells and the pass's, so far
    double own_dot_ = 0;  // the same with this request's EAM before the pass
    double own_norm_ = 0;
    struct Match {
        double likeness;
        int32_t which;  // index into the collection; its size: this request
    };
    std::vector<Match> matches_;
    // The last scores of a layer for these matches, without the weight of its distance.
    struct Known {
        std::vector<int32_t> matches;
        Forecast forecast;
    };
    std::vector<Known> known_;  // [phase * n_layer + layer]
    std::vector<int32_t> matched_;  // which of matches_, in ascending order
    std::vector<float> sums_;  // [n_expert]
};

}  // namespace outrider
