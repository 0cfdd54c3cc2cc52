#include "core/predict/popularity.h"

#include <algorithm>

#include "core/predict/ranking.h"
#include "core/spec_reader.h"

namespace outrider {

Popularity::Popularity(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : n_layer_(around.shape.n_layer),
      n_expert_(around.shape.n_expert),
      n_predict_(forecast_size(around.shape, n_predict)),
      counts_(size_t(n_layer_) * size_t(n_expert_), 0.0f) {
    SpecReader settings(spec, "predictor");
    online_ = settings.whole("online", 1, 0, 1) == 1;
    if (const auto counts = settings.find_counts("counts", {n_layer_, n_expert_})) {
        counts_ = counts->values;
    }
    settings.finish();
}

void Popularity::pass_began(Phase, std::span<const int32_t>, Forecasts & out) {
    for (Layer l = 0; l < n_layer_; l++) {
        const auto counts = std::span<const float>(counts_).subspan(size_t(l) * n_expert_, n_expert_);
        Forecast forecast = best_of(l, counts, n_predict_, 0.0f);
        if (!forecast.experts.empty()) {
            out.push_back(std::move(forecast));
        }
    }
}

void Popularity::routed(const Routing & routing, Forecasts &) {
    if (online_) {
        float * counts = &counts_[size_t(routing.layer) * n_expert_];
        for (Expert e : routing.ids) {
            counts[e] += 1;
        }
    }
}

}  // namespace outrider
