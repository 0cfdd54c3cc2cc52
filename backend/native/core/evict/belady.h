// The optimal eviction for a trace: what is needed last, or never again, leaves (Belady, 1966). It knows
// the future, so only a simulator or a study of a recorded trace can have it. The moment of a use is
// (pass, layer), so it is right where layers share a pool, too. Optimal where slots are of one size and
// whatever is needed must get one, which is so here.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Belady final : public Eviction {
  public:
    explicit Belady(const Surroundings & around);

    void pass_began(Phase) override { pass_++; }
    void routed(const Routing & routing, std::span<const Demand> demands) override;
    // The moment of the next use, negative.
    double keep(Layer layer, Part, Expert expert) const override;

  private:
    struct Uses {
        std::vector<int64_t> passes;  // ascending
        size_t next = 0;              // the first one that is not over
    };
    int32_t n_layer_;
    int64_t pass_ = -1;
    PerExpert<Uses> uses_;
};

}  // namespace outrider
