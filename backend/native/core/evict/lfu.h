// Least frequently used: the number of tokens that chose an expert. With `half_life`, a use counts half after that many
// passes.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

namespace outrider {

class Lfu final : public Eviction {
  public:
    // Number: half_life (0: counts do not age), passes.
    Lfu(const Spec & spec, const Shape & shape);

    void pass_began(Phase) override;
    void routed(const Routing & routing, std::span<const Demand> demands) override;
    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double growth_ = 1;  // of worth_, per pass: later uses count more, instead of earlier ones less
    double worth_ = 1;  // of a use in this pass
    PerExpert<double> count_;
};

}  // namespace outrider
