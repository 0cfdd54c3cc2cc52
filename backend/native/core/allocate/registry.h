// Allocations by name: how many slots each layer gets.
#pragma once

#include <string>

#include "core/spec.h"

namespace outrider {

// Return a layout that takes at most the memory of `n_slot` experts of every layer. Every layer can hold at least the
// experts of one token, so fewer slots count as n_expert_used; more than n_expert count as n_expert. Throws
// std::invalid_argument, a sentence, for an unknown name or numbers out of range.
using Allocate = Layout(const Spec & spec, const Shape & shape, int32_t n_slot);
Allocate allocate;
std::vector<std::string> allocation_names();

// Called with n_expert_used to n_expert slots. Each is in the file of its name, but klotski, one_pool and stream in
// pooled.cc and moepic in uniform.cc.
Allocate allocate_klotski, allocate_moepic, allocate_one_pool, allocate_planned, allocate_stream, allocate_uniform;

}  // namespace outrider
