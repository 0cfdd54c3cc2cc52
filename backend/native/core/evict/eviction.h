// Who leaves: every resident expert has a worth; the lowest one that may leave, leaves.
#pragma once

#include "../types.h"

namespace outrider {

class Eviction {
  public:
    virtual ~Eviction() = default;

    // A pass begins. Policies that decay or count passes use it.
    virtual void pass_began(Phase) {}

    // `expert` was predicted or needed and is, or is about to be, in `slot`.
    virtual void touched(Layer layer, Slot slot, Expert expert) = 0;

    // What `slot` holds was fetched for this pass by a forecast, and was not needed.
    virtual void disappointed(Layer, Slot) {}

    // Worth of keeping what `slot` holds; the lowest leaves first.
    virtual double keep(Layer layer, Slot slot) const = 0;
};

}  // namespace outrider
