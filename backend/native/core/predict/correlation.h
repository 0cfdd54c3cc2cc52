// Which experts follow which: the frequency of an expert, given those that the token chose in the layers before
// (Klotski, section 6.2, "Correlation-aware Expert Prefetcher").
#pragma once

#include <unordered_map>

#include "core/predict/ranking.h"
#include "core/spec.h"

namespace outrider {

// An expert that a token chose in a layer begins a path of length 1 to the next layer; a pair that it chose in two
// successive layers, one of length 2. A token's tendency is the sum, over its paths, of the experts' shares in what
// followed the path. The forecast is the experts with the largest sum over all tokens. The paper predicts the layers
// after the first; here the first ones are predicted too, from the last layers of the token before.
// Numbers: path_length, 1 (the default, as in the paper) or 2. With 2, unknown paths count as the path of length 1 that
// ends them, as many paths are kept as fit in 64 MiB, and a pass of more than 64 tokens uses only the last ones.
// online, 1 (the default): learns from what it sees, 0: does not.
// Arrays: counts [n_layer][n_expert][n_expert], from a warm-up run; optional, not negative: counts[l][i][j] is how
// often tokens that chose i in layer l - 1 chose j in layer l.
class Correlation final : public Predictor {
  public:
    Correlation(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void request_began() override;
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    static constexpr int32_t most_tokens = 64;
    static constexpr int64_t most_bytes = int64_t(64) << 20;

    // The routing of a layer.
    struct Step {
        Layer layer = none;
        int32_t n_token = 0;
        size_t n_used = 0;
        std::vector<Expert> ids;

        std::span<const Expert> of(int32_t token) const { return {ids.data() + size_t(token) * n_used, n_used}; }
    };

    // What `token` of `later`, or (of the next token) of the layer after it, chose in `earlier`; -1 if unknown.
    int32_t token_before(const Step & earlier, const Step & later, int32_t token) const;
    void learn();
    void forecast(Layer target, Forecasts & out);
    void add_short(Layer target, Expert from, float weight);
    float * row(Layer target, Expert from) { return &counts_[size_t(index(target, from)) * n_expert_]; }
    int64_t index(Layer target, Expert from) const { return int64_t(target) * n_expert_ + from; }
    uint64_t path(Layer target, Expert first, Expert second) const {
        return uint64_t(index(target, first)) * uint64_t(n_expert_) + uint64_t(second);
    }

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    int32_t length_;
    bool online_;
    std::vector<float> counts_;  // [target][from][expert]
    std::vector<float> totals_;  // [target][from]
    std::unordered_map<uint64_t, int32_t> long_rows_;
    std::vector<float> long_counts_;  // [row][expert]
    std::vector<float> long_totals_;  // [row]
    std::array<Step, 3> steps_;  // [0]: the present layer, [1]: the one before, ...
    std::vector<int32_t> n_token_;  // [n_expert]: tokens of the present layer
    std::vector<float> votes_;  // [n_expert]
};

}  // namespace outrider
