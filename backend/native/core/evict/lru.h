// Least recently used. A predicted expert counts as used (ProMoE, section 6.1), so a correct prediction of a resident
// expert delays its eviction. A part fetched in vain leaves next: otherwise every wrong forecast would evict something
// that was needed once.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"

namespace outrider {

class Lru final : public Eviction {
  public:
    explicit Lru(const Shape & shape) : stamp_(shape, 0) {}

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    void forecast(const Forecast & forecast) override;
    void disappointed(Layer layer, Expert expert) override;
    double keep(Layer layer, Part, Expert expert) const override { return stamp_.at(layer, expert); }

  private:
    PerExpert<double> stamp_;  // time of the last touch, 0: never, or in vain
    double now_ = 0;
};

}  // namespace outrider
