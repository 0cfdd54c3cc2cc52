// Least recently used. A predicted expert counts as used (ProMoE, section 6.1): a correct
// prediction of something resident thereby delays its eviction. What was fetched in vain leaves
// next: otherwise every wrong forecast would push out something that was needed once.
#pragma once

#include "../spec.h"
#include "eviction.h"

namespace outrider {

class Lru final : public Eviction {
  public:
    explicit Lru(const Surroundings & around);

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    void forecast(const Forecast & forecast) override;
    void disappointed(Layer layer, Expert expert) override;
    double keep(Layer layer, Part, Expert expert) const override { return stamp_[index(layer, expert)]; }

  private:
    size_t index(Layer layer, Expert expert) const { return size_t(layer) * size_t(n_expert_) + size_t(expert); }

    int32_t n_expert_;
    std::vector<double> stamp_;  // [layer * n_expert + expert]: time of the last touch
    double now_ = 0;
};

}  // namespace outrider
