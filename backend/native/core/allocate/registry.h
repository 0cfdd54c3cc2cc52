// Allocations by name: how many slots each layer gets.
#pragma once

#include <string>

#include "core/spec.h"

namespace outrider {

// The layout for a cache rate (resident share of all experts' bytes). Every layer can hold at least the experts of one
// token. Throws std::invalid_argument, a sentence, for an unknown name or numbers out of range.
Layout allocate(const Spec & spec, const Shape & shape, double cache_rate);
std::vector<std::string> allocation_names();

}  // namespace outrider
