// The allocations by name: how much each layer gets.
#pragma once

#include <string>

#include "../spec.h"

namespace outrider {

// Slots for a cache rate (share of all experts' bytes that is resident). Every layer can hold at
// least the experts of one token. Throws std::invalid_argument, a sentence, for an unknown name or
// numbers out of range.
Layout allocate(const Spec & spec, const Shape & shape, double cache_rate);
std::vector<std::string> allocation_names();

}  // namespace outrider
