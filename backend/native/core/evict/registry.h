// Evictions by name.
#pragma once

#include <string>

#include "core/evict/eviction.h"
#include "core/spec.h"

namespace outrider {

// Throws std::invalid_argument, a sentence, for an unknown name, numbers out of range, arrays of a wrong shape, or
// surroundings that lack what the eviction needs.
std::unique_ptr<Eviction> make_eviction(const Spec & spec, const Surroundings & around);
std::vector<std::string> eviction_names();

}  // namespace outrider
