// Evicts at random: by a hash of a seed, the expert and the number of its uses, so equal runs evict equally.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

namespace outrider {

class Random final : public Eviction {
  public:
    // Number: seed (0).
    Random(const Spec & spec, const Shape & shape);

    void routed(const Routing & routing, std::span<const Demand> demands) override;
    double keep(Layer layer, Part, Expert expert) const override;

  private:
    uint64_t seed_;
    PerExpert<uint64_t> n_need_;
};

}  // namespace outrider
