// Least recently used. A predicted expert counts as used (ProMoE, section 6.1), so a correct prediction of a resident
// expert delays its eviction. A part fetched in vain leaves next: otherwise every wrong forecast would evict something
// that was needed once.
//
// As the papers' baseline an expert counts as used only when its turn to be computed comes, in the order of the ids:
// what the layer needs later may then leave for what it needs first (ProMoE, section 5.3).
#include "core/evict/per_expert.h"
#include "core/evict/registry.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

class Lru final : public Eviction {
  public:
    // Numbers: at_access, 1: the papers' baseline (0); vain, 0: parts fetched in vain leave no sooner (1).
    Lru(const Spec & spec, const Shape & shape) : stamp_(shape, 0) {
        SpecReader settings(spec, "eviction");
        at_access_ = settings.flag("at_access", false);
        vain_ = settings.flag("vain", true);
        settings.finish();
    }

    // Token by token: the experts of a prompt's last tokens are the most recent.
    void routed(const Routing & routing, std::span<const Demand>) override {
        for (size_t i = 0; i < routing.ids.size() && !at_access_; i++) {
            stamp_.at(routing.layer, routing.ids[i]) = ++now_;
        }
    }

    void accessed(Layer layer, Expert expert) override {
        if (at_access_) {
            stamp_.at(layer, expert) = ++now_;
        }
    }

    void forecast(const Forecast & forecast) override {
        for (Expert e : forecast.experts) {
            stamp_.at(forecast.layer, e) = ++now_;
        }
    }

    void disappointed(Layer layer, Expert expert) override {
        if (vain_) {
            stamp_.at(layer, expert) = 0;
        }
    }

    double keep(Layer layer, Part, Expert expert) const override { return stamp_.at(layer, expert); }

  private:
    bool at_access_ = false;
    bool vain_ = true;
    PerExpert<double> stamp_;  // time of the last touch, 0: never, or in vain
    double now_ = 0;
};

}  // namespace

std::unique_ptr<Eviction> make_lru(const Spec & spec, const Surroundings & around) {
    return std::make_unique<Lru>(spec, around.shape);
}

}  // namespace outrider
