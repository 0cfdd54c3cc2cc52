// Allocations by name: how many slots each layer gets.
#pragma once

#include <string>

#include "core/spec.h"

namespace outrider {

// The layout for a cache rate (resident share of all experts' bytes). Every layer can hold at least the experts of one
// token. Throws std::invalid_argument, a sentence, for an unknown name or numbers out of range.
using Allocate = Layout(const Spec & spec, const Shape & shape, double cache_rate);
Allocate allocate;
std::vector<std::string> allocation_names();

// Each in the file of its name, but klotski, one_pool and stream in pooled.cc and moepic in uniform.cc.
Allocate allocate_klotski, allocate_moepic, allocate_one_pool, allocate_planned, allocate_stream, allocate_uniform;

}  // namespace outrider
