#include "core/predict/previous_token.h"

#include <algorithm>

#include "core/predict/ranking.h"
#include "core/spec_reader.h"

namespace outrider {

PreviousToken::PreviousToken(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : n_predict_(forecast_size(around.shape, n_predict)) {
    SpecReader(spec, "predictor").finish();
}

void PreviousToken::routed(const Routing & routing, Forecasts & out) {
    if (routing.n_token <= 0) {
        return;
    }
    const size_t n_used = routing.ids.size() / size_t(routing.n_token);
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

}  // namespace outrider
