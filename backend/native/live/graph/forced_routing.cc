#include "live/graph/forced_routing.h"

#include <algorithm>
#include <stdexcept>

#include "ggml-backend.h"
#include "live/graph/segment.h"

namespace outrider {

ForcedRouting::ForcedRouting(const std::vector<int> & layers, int32_t n_expert, int32_t n_expert_used,
                             std::vector<Expert> ids, ForcedValues values, std::vector<int32_t> n_used)
    : n_layer_(layers.size()),
      n_used_(size_t(std::max(n_expert_used, 0))),
      used_(std::move(n_used)),
      ids_(std::move(ids)),
      values_(std::move(values)) {
    for (const int number : layers) {
        layer_of_number_.emplace(number, Layer(layer_of_number_.size()));
    }
    const bool fits =
        layer_of_number_.size() == n_layer_ && n_layer_ * n_used_ > 0 && ids_.size() % (n_layer_ * n_used_) == 0;
    const auto exists = [&](Expert e) { return e >= 0 && e < n_expert; };
    const size_t n_row = fits ? ids_.size() / n_used_ : 0;  // of every layer
    const bool match = (values_.weights.empty() || values_.weights.size() == ids_.size()) &&
                       (values_.inputs.empty() || (n_row > 0 && values_.inputs.size() % n_row == 0)) &&
                       (used_.empty() || used_.size() == n_layer_) &&
                       std::ranges::all_of(used_, [&](int32_t n) { return n > 0 && size_t(n) <= n_used_; });
    if (!fits || !match || !std::all_of(ids_.begin(), ids_.end(), exists)) {
        throw std::invalid_argument("The routing does not fit the model");
    }
}

void ForcedRouting::begin_pass(int64_t first_row, int32_t n_token) {
    const size_t n_row = ids_.size() / (n_layer_ * n_used_);
    if (first_row < 0 || n_token < 0 || size_t(first_row) + size_t(n_token) > n_row) {
        throw std::out_of_range("The routing ends before the pass does");
    }
    first_row_ = size_t(first_row);
    n_token_ = size_t(n_token);
    error_.clear();
}

void ForcedRouting::write(ggml_tensor * topk, Layer layer) const {
    const auto n_row = size_t(topk->ne[1]);
    if (size_t(topk->ne[0]) != used(layer) || n_row > n_token_) {
        throw std::runtime_error("The model chooses other numbers of experts than the routing that is forced on it");
    }
    if (n_row == 0) {
        return;
    }
    // A row of `ids` has all layers of a token. A row of the choice may be a sorted list of all experts.
    const size_t first = ((first_row_ + n_token_ - n_row) * n_layer_ + size_t(layer)) * n_used_;
    const size_t stride = n_layer_ * n_used_ * sizeof(Expert);
    ggml_backend_tensor_set_2d(topk, &ids_[first], 0, used(layer) * sizeof(Expert), n_row, topk->nb[1], stride);
}

ForcedValues ForcedRouting::values(Layer layer, int32_t n_row) const {
    const size_t n_all = ids_.size() / n_used_;  // rows of every layer
    const auto rows = [&](const std::vector<float> & values, size_t n_wanted) {
        const size_t width = n_all > 0 ? values.size() / n_all : 0;
        n_wanted = std::min(n_wanted, width);
        std::vector<float> found;
        for (size_t t = n_token_ - size_t(n_row); t < n_token_ && width > 0; t++) {
            const auto at = values.begin() + int64_t(((first_row_ + t) * n_layer_ + size_t(layer)) * width);
            found.insert(found.end(), at, at + int64_t(n_wanted));
        }
        return found;
    };
    return {rows(values_.weights, used(layer)), rows(values_.inputs, SIZE_MAX)};
}

bool ForcedRouting::callback(ggml_tensor * node, bool ask, void * self) {
    auto & forced = *static_cast<ForcedRouting *>(self);
    if (!ask) {
        return forced.computed(node);
    }
    const auto number = layer_in_name(node, "ffn_moe_topk");
    return number && forced.layer_of_number_.count(*number) > 0;
}

bool ForcedRouting::computed(ggml_tensor * node) {
    try {
        write(node, layer_of_number_.at(*layer_in_name(node, "ffn_moe_topk")));
        return true;
    } catch (const std::exception & e) {
        error_ = e.what();
        return false;
    }
}

}  // namespace outrider
