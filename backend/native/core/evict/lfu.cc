// Least frequently used: the number of tokens that chose an expert. With `half_life`, a use counts half after that many
// passes.
#include <cmath>

#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Lfu final : public Eviction {
  public:
    // Number: half_life (0: counts do not age), passes.
    Lfu(const Spec & spec, const Shape & shape) : count_(shape, 0) {
        SpecReader settings(spec, "eviction");
        const double half_life = settings.number("half_life", 0, 0, 1e9);
        settings.finish();
        if (half_life > 0) {
            growth_ = std::exp2(1 / half_life);
        }
    }

    void pass_began(Phase) override {
        worth_ *= growth_;
        if (worth_ > 1e100) {
            for (double & count : count_.all()) {
                count /= worth_;
            }
            worth_ = 1;
        }
    }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        for (const Demand & d : demands) {
            count_.at(routing.layer, d.expert) += d.n_token * worth_;
        }
    }

    double keep(Layer layer, Part, Expert expert) const override { return count_.at(layer, expert); }

  private:
    double growth_ = 1;  // of worth_, per pass: later uses count more, instead of earlier ones less
    double worth_ = 1;  // of a use in this pass
    PerExpert<double> count_;
};

}  // namespace

std::unique_ptr<Eviction> make_lfu(const Spec & spec, const Surroundings & around) {
    return std::make_unique<Lfu>(spec, around.shape);
}

}  // namespace outrider
