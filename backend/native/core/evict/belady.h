// The optimal eviction for a trace: the part needed last, or never again, leaves (Belady, 1966). It knows the future,
// so only a simulator, or a study of a recorded trace, can use it. A use is a (pass, layer), so it is right for pools
// that layers share. It is optimal where slots are of one size and every need gets one, which holds here.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/per_expert.h"
#include "core/spec.h"

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
