// P(expert | layer, token): the experts that a token's id makes probable, without context (the token-based predictor of
// ProMoE, section 4.2). It forecasts all layers before the pass computes.
#pragma once

#include <unordered_map>

#include "core/predict/ranking.h"
#include "core/spec.h"

namespace outrider {

// The score of an expert is (count + smoothing * share) / (all counts + smoothing), summed over the asked tokens: count
// is how often the layer chose it for this token id, share is its part of the layer's choices for all tokens. So an
// unknown token gets the popular experts.
// Numbers: online, 1 (the default): learns from what it sees, 0: does not; smoothing, by default 1; capacity, the
// number of token ids, those seen last (by default what fits in 64 MiB, and at least as many as the array has). Arrays,
// both or none: tokens [n], distinct ids; counts [n][n_layer][n_expert], not negative.
class TokenTable final : public Predictor {
  public:
    TokenTable(const Spec & spec, const Surroundings & around, int32_t n_predict);

    void pass_began(Phase phase, std::span<const int32_t> tokens, Forecasts & out) override;
    void routed(const Routing & routing, Forecasts & out) override;

  private:
    // A token id, as a link of a ring in the order of their last occurrence.
    struct Row {
        int32_t token;
        int32_t older;
        int32_t newer;
    };

    int32_t row_of(int32_t token);  // a new one evicts the oldest when full
    void unlink(int32_t row);
    void link_newest(int32_t row);
    float * counts(int32_t row, Layer layer) { return &counts_[(size_t(row) * n_layer_ + layer) * n_expert_]; }
    void learn(float * counts, float & total, std::span<const Expert> ids);

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_predict_;
    int32_t capacity_;
    bool online_;
    float smoothing_;
    std::unordered_map<int32_t, int32_t> row_by_token_;
    std::vector<Row> rows_{{none, 0, 0}};  // [0] is the ring's end: its newer is the oldest
    std::vector<float> counts_;  // [row][layer][expert]; row 0: of all tokens
    std::vector<float> totals_;  // [row][layer]
    std::vector<int32_t> pass_rows_;  // [token of the pass]; none: unknown id
    std::vector<float> scores_;  // [n_expert]
};

}  // namespace outrider
