// LFU that forgets: recent uses of an expert, decaying at two speeds (use_rate.h), with half-lives of 3 and 23 passes.
// LRU knows only the last use, so one chance use evicts what every third token needs. LFU keeps forever what a long
// prompt needed, and LCP counts it in full as soon as it is used again. An expert that a predictor expects in the
// layer's next pass is worth more than any unexpected one.
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/expected.h"
#include "core/evict/use_rate.h"
#include "core/spec.h"

namespace outrider {

class Decayed final : public Eviction {
  public:
    // Numbers: fast (0.8), slow (0.97): the factor on a use for each further pass; slow_share (0.9).
    Decayed(const Spec & spec, const Shape & shape);

    bool wants_weights() const override { return true; }
    void routed(const Routing & routing, std::span<const Demand> demands) override;
    void forecast(const Forecast & forecast) override { expected_.forecast(forecast); }
    void disappointed(Layer layer, Expert expert) override { expected_.in_vain(layer, expert); }
    double keep(Layer layer, Part, Expert expert) const override {
        return rate_.of(layer, expert) + expected_.bonus(layer, expert);
    }

  private:
    Amounts amounts_;
    UseRate rate_;
    Expected expected_;
};

}  // namespace outrider
