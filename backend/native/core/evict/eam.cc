#include "core/evict/eam.h"

#include <algorithm>
#include <cmath>

#include "core/spec_reader.h"

namespace outrider {

EamEviction::EamEviction(const Spec & spec, const Shape & shape)
    : n_layer_(shape.n_layer), own_(shape, 0), forecast_(shape, 0), rows_(size_t(n_layer_)) {
    SpecReader settings(spec, "eviction");
    epsilon_ = settings.number("epsilon", 1e-6, 1e-12, 1);
    settings.finish();
}

void EamEviction::request_began() {
    std::ranges::fill(own_.all(), 0.0);
    std::ranges::fill(rows_, Row{});
}

void EamEviction::routed(const Routing & routing, std::span<const Demand> demands) {
    for (const Demand & d : demands) {
        own_.at(routing.layer, d.expert) += d.n_token;
        rows_[size_t(routing.layer)].sum += d.n_token;
    }
}

void EamEviction::forecast(const Forecast & forecast) {
    const auto row = forecast_.row(forecast.layer);
    std::ranges::fill(row, 0.0);
    double sum = 0;
    for (size_t i = 0; i < forecast.experts.size(); i++) {
        const double score = i < forecast.scores.size() ? double(forecast.scores[i]) : 1.0;
        row[size_t(forecast.experts[i])] = std::isfinite(score) && score > 0 ? score : 0;
    }
    for (double score : row) {
        sum += score;
    }
    rows_[size_t(forecast.layer)].forecast_sum = sum;
}

double EamEviction::keep(Layer layer, Part, Expert expert) const {
    const Row & row = rows_[size_t(layer)];
    double p = 0;
    if (row.forecast_sum > 0) {
        p = forecast_.at(layer, expert) / row.forecast_sum;
    } else if (row.sum > 0) {
        p = own_.at(layer, expert) / row.sum;
    }
    return (p + epsilon_) * (1 - double(layer) / n_layer_);
}

}  // namespace outrider
