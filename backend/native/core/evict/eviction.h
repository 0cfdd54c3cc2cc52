// Who is evicted: every resident part has a worth, and the lowest that may leave does. An eviction knows experts, not
// slots, so it can remember those that are gone.
#pragma once

#include "core/predict/predictor.h"
#include "core/types.h"

namespace outrider {

class Eviction {
  public:
    virtual ~Eviction() = default;

    // Whether routed() uses the router's weights.
    virtual bool wants_weights() const { return false; }

    // A new conversation begins, unrelated to the last one, or several that are computed jointly.
    virtual void request_began() {}
    // A sequence begins beside others.
    virtual void sequence_began(int32_t sequence) { (void) sequence; }
    // For policies that decay by pass, or count passes.
    virtual void pass_began(Phase) {}
    // The layer's needs, with the router's weights where known; comes before any slot of the layer changes hands.
    virtual void routed(const Routing & routing, std::span<const Demand> demands) = 0;
    // An expert is about to be computed. In a strict order each comes when its turn does, in the order of their ids.
    virtual void accessed(Layer, Expert) {}
    // A predictor's forecast, whether or not it is fetched.
    virtual void forecast(const Forecast &) {}
    // `expert` was fetched for the last forecast and not needed.
    virtual void disappointed(Layer, Expert) {}

    // The worth of keeping the part of `expert`. The lowest leaves first; among equals, any.
    virtual double keep(Layer layer, Part part, Expert expert) const = 0;
};

}  // namespace outrider
