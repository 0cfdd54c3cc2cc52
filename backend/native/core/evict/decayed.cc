// LFU that forgets: recent uses of an expert, decaying at two speeds (use_rate.h), with half-lives of 3 and 23
// passes. LRU knows only the last use, so one chance use evicts what every third token needs. LFU keeps the experts
// of a long prompt forever, and LCP counts it in full as soon as it is used again. An expert that a predictor expects
// in the layer's next pass is worth more than any unexpected one.
#include "core/evict/duel.h"
#include "core/evict/expected.h"
#include "core/evict/registry.h"
#include "core/evict/use_rate.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

UseRate rate_of(const Spec & spec, const Shape & shape) {
    SpecReader settings(spec, "eviction");
    const double fast = settings.number("fast", 0.8, 0.01, 0.9999);
    const double slow = settings.number("slow", 0.97, 0.01, 0.9999);
    const double slow_share = settings.number("slow_share", 0.9, 0.001, 0.999);
    settings.flag("duel", true);
    settings.finish();
    return {shape, fast, slow, slow_share};
}

class Decayed final : public Eviction {
  public:
    // Numbers: fast (0.8), slow (0.97): the factor on a use for each further pass; slow_share (0.9); duel, 0: never
    // leaves the decision to LRU (1: duel.h).
    Decayed(const Spec & spec, const Shape & shape) : amounts_(shape), rate_(rate_of(spec, shape)), expected_(shape) {}

    bool wants_weights() const override { return true; }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
        rate_.pass(routing.layer);
        expected_.routed(routing.layer);
        amounts_.each(routing, demands, [&](Expert e, double amount) { rate_.add(routing.layer, e, amount); });
    }

    void forecast(const Forecast & forecast) override {
        expected_.forecast(forecast);
        if (forecast.certain) {
            rate_.pass_ahead(forecast.layer);  // who leaves for them is decided before the layer is reached
        }
    }
    void disappointed(Layer layer, Expert expert) override { expected_.in_vain(layer, expert); }
    double keep(Layer layer, Part, Expert expert) const override {
        return rate_.of(layer, expert) + expected_.bonus(layer, expert);
    }

  private:
    Amounts amounts_;
    UseRate rate_;
    Expected expected_;
};

}  // namespace

std::unique_ptr<Eviction> make_decayed(const Spec & spec, const Surroundings & around) {
    return duelling(spec, std::make_unique<Decayed>(spec, around.shape), around);
}

}  // namespace outrider
