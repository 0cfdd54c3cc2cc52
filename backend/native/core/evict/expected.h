// The experts of the last forecast for a layer, until the layer is routed.
#pragma once

#include <vector>

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"

namespace outrider {

class Expected {
  public:
    explicit Expected(const Shape & shape) : bonus_(shape, 0), experts_(size_t(shape.n_layer)) {}

    void forecast(const Forecast & forecast) {
        routed(forecast.layer);
        experts_[size_t(forecast.layer)] = forecast.experts;
        for (Expert e : forecast.experts) {
            bonus_.at(forecast.layer, e) = 1000;
        }
    }
    void routed(Layer layer) {
        for (Expert e : experts_[size_t(layer)]) {
            bonus_.at(layer, e) = 0;
        }
        experts_[size_t(layer)].clear();
    }
    void in_vain(Layer layer, Expert expert) { bonus_.at(layer, expert) = 0; }
    // Above any rate of use, or 0.
    double bonus(Layer layer, Expert expert) const { return bonus_.at(layer, expert); }

  private:
    PerExpert<double> bonus_;
    std::vector<std::vector<Expert>> experts_;  // [layer]
};

}  // namespace outrider
