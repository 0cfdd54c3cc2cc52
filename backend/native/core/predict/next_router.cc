#include "core/predict/next_router.h"

#include <algorithm>

#include "core/predict/mat_vec.h"
#include "core/spec_reader.h"

namespace outrider {

std::vector<std::span<const float>> known_routers(const Spec & spec, const Surroundings & around) {
    const SpecReader settings(spec, "predictor");
    const size_t n_value = size_t(std::max(around.n_embd, 0)) * size_t(around.shape.n_expert);
    bool any = false;
    for (const auto & router : around.routers) {
        if (!router.empty() && router.size() != n_value) {
            settings.refuse("cannot use the model's routers, which are of another size than its inputs");
        }
        any = any || !router.empty();
    }
    if (!any || int32_t(around.routers.size()) != around.shape.n_layer) {
        settings.refuse("needs the model's routers, which are not known");
    }
    return around.routers;
}

NextRouter::NextRouter(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : n_layer_(around.shape.n_layer),
      n_expert_(around.shape.n_expert),
      n_embd_(around.n_embd),
      n_predict_(forecast_size(around.shape, n_predict)),
      routers_(known_routers(spec, around)),
      poll_(n_expert_) {
    SpecReader settings(spec, "predictor");
    stride_ = settings.whole("stride", 1, 1, 2);
    settings.finish();
}

void NextRouter::gate_seen(Layer layer, std::span<const float> input, int32_t n_token, Forecasts & out) {
    const Layer target = layer_after(layer, stride_, n_layer_);
    if (target == none || routers_[target].empty() || n_token <= 0 ||
        input.size() < size_t(n_token) * size_t(n_embd_)) {
        return;
    }
    if (target <= layer) {  // of the next token
        input = input.subspan(size_t(n_token - 1) * n_embd_, n_embd_);
        n_token = 1;
    }
    out.push_back(poll_.ask(target, Asked(n_token), n_predict_, [&](int32_t token, float * row) {
        std::fill(row, row + n_expert_, 0.0f);
        add_mat_vec(routers_[target].data(), input.data() + int64_t(token) * n_embd_, n_expert_, n_embd_, row);
    }));
}

}  // namespace outrider
