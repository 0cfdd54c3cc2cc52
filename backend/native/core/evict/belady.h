// The optimal eviction for a trace: what is needed last, or never again, leaves (Belady, 1966). It knows
// the future, so only a simulator or a replayed study can have it.
#pragma once

#include <limits>
#include <stdexcept>

#include "../spec.h"
#include "eviction.h"
#include "per_expert.h"

namespace outrider {

class Belady final : public Eviction {
  public:
    explicit Belady(const Surroundings & around) : n_layer_(around.shape.n_layer), uses_(around.shape, {}) {
        if (!around.future) {
            throw std::invalid_argument("The eviction belady needs a trace of what is to come");
        }
        for (size_t pass = 0; pass < around.future->passes.size(); pass++) {
            const auto & ids = around.future->passes[pass].ids;
            if (int32_t(ids.size()) != n_layer_) {
                throw std::invalid_argument("The eviction belady was given a trace of another model");
            }
            for (Layer l = 0; l < n_layer_; l++) {
                for (Expert e : ids[size_t(l)]) {
                    auto & uses = uses_.at(l, e).passes;
                    if (uses.empty() || uses.back() != int64_t(pass)) {
                        uses.push_back(int64_t(pass));
                    }
                }
            }
        }
    }

    void pass_began(Phase) override { pass_++; }
    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            Uses & uses = uses_.at(routing.layer, d.expert);
            while (uses.next < uses.passes.size() && uses.passes[uses.next] <= pass_) {
                uses.next++;
            }
        }
    }
    // The moment of the next use, negative.
    double keep(Layer layer, Part, Expert expert) const override {
        const Uses & uses = uses_.at(layer, expert);
        return uses.next == uses.passes.size() ? -std::numeric_limits<double>::infinity()
                                               : -double(uses.passes[uses.next] * n_layer_ + layer);
    }

  private:
    struct Uses {
        std::vector<int64_t> passes;
        size_t next = 0;
    };

    int32_t n_layer_;
    int64_t pass_ = -1;
    PerExpert<Uses> uses_;
};

}  // namespace outrider
