// Least frequently used, counted over all time: the tokens that chose an expert.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Lfu final : public Eviction {
  public:
    explicit Lfu(const Surroundings & around) : count_(around.shape, 0) {}

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            count_.at(routing.layer, d.expert) += d.n_token;
        }
    }
    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    PerExpert<double> count_;
};

}  // namespace outrider
