#include "live/ggml/values.h"

#include <cstring>

namespace outrider {

std::vector<float> values_of(ggml_type type, std::span<const uint8_t> blocks) {
    const auto to_float = ggml_get_type_traits(type)->to_float;
    if (type != GGML_TYPE_F32 && !to_float) {
        return {};
    }
    std::vector<float> values(blocks.size() / ggml_type_size(type) * size_t(ggml_blck_size(type)));
    if (type == GGML_TYPE_F32) {
        std::memcpy(values.data(), blocks.data(), blocks.size());
    } else {
        to_float(blocks.data(), values.data(), int64_t(values.size()));
    }
    return values;
}

}  // namespace outrider
