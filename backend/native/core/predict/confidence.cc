#include "confidence.h"

namespace outrider {

Confidence::Confidence(int32_t n_layer, double min_precision) : min_precision_(min_precision), forecasts_(n_layer) {}

Forecast Confidence::worthwhile(const Forecast & forecast) {
    if (forecast.layer == none) {
        return forecast;
    }
    forecasts_[forecast.layer] = forecast.experts;
    const bool has_scores = forecast.scores.size() == forecast.experts.size();
    Forecast kept{forecast.layer, {}, {}};
    for (size_t rank = 0; rank < forecast.experts.size(); rank++) {
        if (precision(rank) >= min_precision_) {
            kept.experts.push_back(forecast.experts[rank]);
            if (has_scores) {
                kept.scores.push_back(forecast.scores[rank]);
            }
        }
    }
    return kept;
}

void Confidence::judge(Layer layer, std::span<const uint8_t> needed) {
    auto & experts = forecasts_[layer];
    if (precision_.size() < experts.size()) {
        precision_.resize(experts.size(), 1.0);
    }
    for (size_t rank = 0; rank < experts.size(); rank++) {
        const double used = needed[experts[rank]] != 0 ? 1.0 : 0.0;
        precision_[rank] += weight * (used - precision_[rank]);
    }
    experts.clear();
}

}  // namespace outrider
