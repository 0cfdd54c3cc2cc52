// The optimal eviction for a trace: the part needed last, or never again, leaves (Belady, 1966). It knows the future,
// so only a simulator, or a study of a recorded trace, can use it. A use is a (pass, layer), so it is right for pools
// that layers share. It is optimal where slots are of one size and every need gets one, which holds here.
#include <limits>
#include <stdexcept>

#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Belady final : public Eviction {
  public:
    explicit Belady(const Surroundings & around) : n_layer_(around.shape.n_layer), uses_(around.shape, {}) {
        if (!around.future) {
            throw std::invalid_argument("The eviction belady needs a trace of what is to come");
        }
        const auto & passes = around.future->passes;
        for (size_t pass = 0; pass < passes.size(); pass++) {
            if (passes[pass].ids.size() != size_t(n_layer_)) {
                throw std::invalid_argument("The eviction belady was given a trace of another model");
            }
            for (Layer l = 0; l < n_layer_; l++) {
                for (Expert e : passes[pass].ids[size_t(l)]) {
                    if (e < 0 || e >= around.shape.n_expert) {
                        throw std::invalid_argument("The eviction belady was given a trace of another model");
                    }
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
        std::vector<int64_t> passes;  // ascending
        size_t next = 0;              // the first one that is not over
    };
    int32_t n_layer_;
    int64_t pass_ = -1;
    PerExpert<Uses> uses_;
};

}  // namespace

std::unique_ptr<Eviction> make_belady(const Spec & spec, const Surroundings & around) {
    SpecReader(spec, "eviction").finish();
    return std::make_unique<Belady>(around);
}

}  // namespace outrider
