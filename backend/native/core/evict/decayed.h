// How often an expert was used of late (use_rate.h): LFU that forgets, at two speeds. LRU knows only the
// last use, and one chance use pushes out what is needed every third token; LFU and LCP never forget a
// long prompt. Both speeds are short of a prompt's length: the half-lives are 3 and 19 passes. An expert that
// a predictor expects in the layer's next pass is worth more than any that nobody expects.
#pragma once

#include "../spec.h"
#include "eviction.h"
#include "expected.h"
#include "use_rate.h"

namespace outrider {

class Decayed final : public Eviction {
  public:
    // Numbers: fast (0.8), slow (0.965): what a use counts after each further pass; slow_share (0.7).
    Decayed(const Spec & spec, const Shape & shape);

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
