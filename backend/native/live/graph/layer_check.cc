#include "live/graph/layer_check.h"

#include <algorithm>
#include <cmath>

#include "ggml-backend.h"
#include "live/graph/segment.h"

namespace outrider {

bool LayerCheck::wants(const ggml_tensor * node) const {
    return !layer_ && node->type == GGML_TYPE_F32 && ggml_is_contiguous(node) && layer_in_name(node, "l_out");
}

void LayerCheck::look(const ggml_tensor * node) {
    values_.resize(size_t(ggml_nelements(node)));
    ggml_backend_tensor_get(node, values_.data(), 0, ggml_nbytes(node));
    if (!std::all_of(values_.begin(), values_.end(), [](float v) { return std::isfinite(v); })) {
        layer_ = layer_in_name(node, "l_out");
    }
}

bool LayerCheck::callback(ggml_tensor * node, bool ask, void * self) {
    auto & check = *static_cast<LayerCheck *>(self);
    if (ask) {
        return check.wants(node);
    }
    check.look(node);
    return true;
}

}  // namespace outrider
