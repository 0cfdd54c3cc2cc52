// How often an expert was used of late (use_rate.h): LFU that forgets, at two speeds. LRU knows only the
// last use, so one chance use pushes out what every third token needs; LFU keeps for ever what a long
// prompt needed, and LCP counts it in full as soon as it is used again. The half-lives are 3 and 23 passes. An
// expert that a predictor expects in the layer's next pass is worth more than any that nobody expects.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "expected.h"
#include "use_rate.h"

namespace outrider {

class Decayed final : public Eviction {
  public:
    // Numbers: fast (0.8), slow (0.97): what a use counts after each further pass; slow_share (0.9).
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
