#include "core/predict/confidence.h"

#include <algorithm>
#include <bit>

namespace outrider {

Confidence::Confidence(int32_t n_layer, int32_t n_expert, double min_precision)
    : n_expert_(n_expert),
      min_precision_(min_precision),
      forecasts_(size_t(n_layer)),
      n_routed_(size_t(n_layer), 0),
      last_used_(size_t(n_layer) * size_t(n_expert), 0) {
    of_age_.fill(1.0);
}

size_t Confidence::age_class(uint32_t n_ago) {
    return n_ago == 0 ? n_age_class - 1 : std::min<size_t>(size_t(std::bit_width(n_ago)) - 1, n_age_class - 1);
}

// Routings of the layer since it used the expert, with the present one; 0: never.
uint32_t Confidence::n_ago(Layer layer, Expert expert) const {
    const uint32_t last = last_used_[size_t(layer) * size_t(n_expert_) + size_t(expert)];
    return last == 0 ? 0 : n_routed_[size_t(layer)] + 1 - last;
}

Forecast Confidence::worthwhile(const Forecast & forecast) {
    if (forecast.layer == none) {
        return forecast;
    }
    auto & told = forecasts_[size_t(forecast.layer)];
    told.clear();
    const bool has_scores = forecast.scores.size() == forecast.experts.size();
    const double least = absent_share * min_precision_ * std::clamp(full_at * congestion_, least_share, 1.0);
    Forecast kept{forecast.layer, {}, {}};
    for (size_t rank = 0; rank < forecast.experts.size(); rank++) {
        const Expert expert = forecast.experts[rank];
        const size_t age = age_class(n_ago(forecast.layer, expert));
        told.push_back({expert, absent_[rank] ? int32_t(age) : none});
        const bool trusted = !absent_[rank] || of_age_[age] >= least;
        if (trusted && precision(rank) >= min_precision_) {
            kept.experts.push_back(expert);
            if (has_scores) {
                kept.scores.push_back(forecast.scores[rank]);
            }
        }
    }
    return kept;
}

void Confidence::judge(Layer layer, std::span<const uint8_t> needed) {
    auto & told = forecasts_[size_t(layer)];
    if (precision_.size() < told.size()) {
        precision_.resize(told.size(), 1.0);
    }
    for (size_t rank = 0; rank < told.size(); rank++) {
        const double used = needed[size_t(told[rank].expert)] != 0 ? 1.0 : 0.0;
        precision_[rank] += weight * (used - precision_[rank]);
        if (told[rank].age_class != none) {
            double & of_age = of_age_[size_t(told[rank].age_class)];
            of_age += age_weight * (used - of_age);
        }
    }
    told.clear();
    n_routed_[size_t(layer)]++;
    for (Expert e = 0; e < n_expert_; e++) {
        if (needed[size_t(e)] != 0) {
            last_used_[size_t(layer) * size_t(n_expert_) + size_t(e)] = n_routed_[size_t(layer)];
        }
    }
}

}  // namespace outrider
