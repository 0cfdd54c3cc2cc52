// Who leaves: every resident part has a worth; the lowest one that may leave, leaves. An eviction
// knows experts, not slots, so that it can remember those that are gone.
#pragma once

#include "../predict/predictor.h"
#include "../types.h"

namespace outrider {

class Eviction {
  public:
    virtual ~Eviction() = default;

    // Whether routed() makes something of the router's weights.
    virtual bool wants_weights() const { return false; }

    // A new conversation begins: what was learned of the last one may mean nothing.
    virtual void request_began() {}
    // A pass begins. Policies that decay or count passes use it.
    virtual void pass_began(Phase) {}
    // What the layer needs now, with the router's weights where they are known; said before any
    // slot of the layer is given away.
    virtual void routed(const Routing & routing, std::span<const Demand> demands) = 0;
    // A predictor's forecast, whether or not it is fetched.
    virtual void forecast(const Forecast &) {}
    // Of the last forecast, `expert` was fetched or kept for, and was not needed.
    virtual void disappointed(Layer, Expert) {}

    // Worth of keeping the part of `expert`; the lowest leaves first. Of equals any may leave.
    virtual double keep(Layer layer, Part part, Expert expert) const = 0;
};

}  // namespace outrider
