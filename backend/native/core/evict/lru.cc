// Least recently used. A predicted expert counts as used (ProMoE, section 6.1), so a correct prediction of a resident
// expert delays its eviction. A part fetched in vain leaves next: otherwise every wrong forecast would evict something
// that was needed once.
#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Lru final : public Eviction {
  public:
    explicit Lru(const Shape & shape) : stamp_(shape, 0) {}

    // Token by token: the experts of a prompt's last tokens are the most recent.
    void routed(const Routing & routing, std::span<const Demand>) override {
        for (Expert e : routing.ids) {
            stamp_.at(routing.layer, e) = ++now_;
        }
    }

    void forecast(const Forecast & forecast) override {
        for (Expert e : forecast.experts) {
            stamp_.at(forecast.layer, e) = ++now_;
        }
    }

    void disappointed(Layer layer, Expert expert) override { stamp_.at(layer, expert) = 0; }

    double keep(Layer layer, Part, Expert expert) const override { return stamp_.at(layer, expert); }

  private:
    PerExpert<double> stamp_;  // time of the last touch, 0: never, or in vain
    double now_ = 0;
};

}  // namespace

std::unique_ptr<Eviction> make_lru(const Spec & spec, const Surroundings & around) {
    SpecReader(spec, "eviction").finish();
    return std::make_unique<Lru>(around.shape);
}

}  // namespace outrider
