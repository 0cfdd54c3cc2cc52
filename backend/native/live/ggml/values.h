// The values of weights in ggml's types.
#pragma once

#include <span>
#include <vector>

#include "ggml.h"

namespace outrider {

// Return the values of whole blocks of weights, or nothing if ggml cannot convert the type.
std::vector<float> values_of(ggml_type type, std::span<const uint8_t> blocks);

}  // namespace outrider
