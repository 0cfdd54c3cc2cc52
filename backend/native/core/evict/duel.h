// A policy that knows the past better than LRU may still lose to it on routing of another kind. So both keep a
// directory of what a cache of the layer's size would hold, without copies, and the one that lately missed less
// decides.
#pragma once

#include <memory>

#include "core/evict/eviction.h"
#include "core/spec.h"

namespace outrider {

// The eviction `own`, or LRU where that would have missed less; just `own` if the spec's number `duel` is 0.
std::unique_ptr<Eviction> duelling(const Spec & spec, std::unique_ptr<Eviction> own, const Surroundings & around);

}  // namespace outrider
