// Predicts that a layer chooses the same experts for the next token as for the last one.
#include <algorithm>

#include "core/predict/ranking.h"
#include "core/predict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// No numbers, no arrays. A routed layer gives a forecast for itself in the next pass: the last token's experts, in
// the order of the router's weights. With several sequences, the experts of all their last tokens, in the order of
// the sums.
class PreviousToken final : public Predictor {
  public:
    PreviousToken(const Spec & spec, const Surroundings & around, int32_t n_predict)
        : n_expert_(around.shape.n_expert), n_predict_(forecast_size(around.shape, n_predict)) {
        SpecReader(spec, "predictor").finish();
    }

    bool wants_weights() const override { return true; }

    void routed(const Routing & routing, Forecasts & out) override {
        if (routing.n_token <= 0) {
            return;
        }
        const size_t n_used = routing.ids.size() / size_t(routing.n_token);
        if (const auto last = routing.last_tokens(); last.size() > 1) {
            std::vector<float> sums(size_t(n_expert_), 0.0f);
            for (int32_t t : last) {
                const auto of_token = routing.of(t);
                for (size_t i = 0; i < n_used; i++) {
                    const bool known = routing.weights.size() == routing.ids.size();
                    sums[size_t(of_token[i])] += known ? routing.weights[size_t(t) * n_used + i] : 1.0f;
                }
            }
            out.push_back(best_of(routing.layer, sums, n_expert_, 0.0f));
            return;
        }
        const auto ids = routing.ids.last(n_used);
        if (routing.weights.size() != routing.ids.size()) {
            const size_t n = std::min(n_used, size_t(n_predict_));
            out.push_back({routing.layer, {ids.begin(), ids.begin() + ptrdiff_t(n)}, {}});
            return;
        }
        Forecast forecast = best_of(routing.layer, routing.weights.last(n_used), n_predict_);
        for (Expert & e : forecast.experts) {
            e = ids[e];  // from a position to its expert
        }
        out.push_back(std::move(forecast));
    }

  private:
    int32_t n_expert_;
    int32_t n_predict_;
};

}  // namespace

std::unique_ptr<Predictor> make_previous_token(const Spec & spec, const Surroundings & around, int32_t n_predict) {
    return std::make_unique<PreviousToken>(spec, around, n_predict);
}

}  // namespace outrider
