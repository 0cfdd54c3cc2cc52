// Evictions by name.
#pragma once

#include <string>

#include "core/evict/eviction.h"
#include "core/spec.h"

namespace outrider {

// Throws std::invalid_argument, a sentence, for an unknown name, numbers out of range, arrays of a wrong shape, or
// surroundings that lack what the eviction needs.
using MakeEviction = std::unique_ptr<Eviction>(const Spec & spec, const Surroundings & around);
MakeEviction make_eviction;
std::vector<std::string> eviction_names();

// Each in the file of its name.
MakeEviction make_belady, make_decayed, make_eam, make_lcp, make_lfu, make_lru, make_random, make_recall, make_static;

}  // namespace outrider
