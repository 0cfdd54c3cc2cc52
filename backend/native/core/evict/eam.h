// MoE-Infinity's eviction (section 5.2, Algorithm 1): (p + epsilon) * (1 - layer / L), so that of equals
// the early layers stay. p is the predicted share of a layer's activations: of the forecasts where there
// are any, and of the present request's own activations where there are none.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class EamEviction final : public Eviction {
  public:
    explicit EamEviction(const Surroundings & around)
        : n_layer_(around.shape.n_layer),
          own_(around.shape, 0),
          forecast_(around.shape, 0),
          n_own_(size_t(n_layer_), 0),
          is_forecast_(size_t(n_layer_), 0) {}

    void request_began() override {
        for (Layer l = 0; l < n_layer_; l++) {
            std::fill(own_.row(l).begin(), own_.row(l).end(), 0.0);
            n_own_[size_t(l)] = 0;
            is_forecast_[size_t(l)] = 0;
        }
    }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            own_.at(routing.layer, d.expert) += d.n_token;
            n_own_[size_t(routing.layer)] += d.n_token;
        }
    }
    void forecast(const Forecast & forecast) override {
        auto row = forecast_.row(forecast.layer);
        std::fill(row.begin(), row.end(), 0.0);
        double sum = 0;
        for (size_t i = 0; i < forecast.experts.size(); i++) {
            const double score = i < forecast.scores.size() ? double(forecast.scores[i]) : 1.0;
            row[size_t(forecast.experts[i])] = score > 0 ? score : 0;
            sum += row[size_t(forecast.experts[i])];
        }
        for (double & p : row) {
            p /= sum > 0 ? sum : 1;
        }
        is_forecast_[size_t(forecast.layer)] = sum > 0;
    }
    double keep(Layer layer, Part, Expert expert) const override {
        constexpr double epsilon = 1e-6;
        const double n_own = n_own_[size_t(layer)];
        const double own = n_own > 0 ? own_.at(layer, expert) / n_own : 0;
        const double p = is_forecast_[size_t(layer)] ? forecast_.at(layer, expert) : own;
        return (p + epsilon) * (1 - double(layer) / n_layer_);
    }

  private:
    int32_t n_layer_;
    PerExpert<double> own_;
    PerExpert<double> forecast_;
    std::vector<double> n_own_;         // [layer]
    std::vector<uint8_t> is_forecast_;  // [layer]
};

}  // namespace outrider
