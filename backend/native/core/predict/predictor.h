// What will be used: from what a layer sees, which experts a later layer will choose.
#pragma once

#include <span>
#include <vector>

#include "../types.h"

namespace outrider {

// Experts that `layer` will probably choose, the most probable first.
struct Forecast {
    Layer layer = none;
    std::vector<Expert> experts;
};

class Predictor {
  public:
    virtual ~Predictor() = default;

    // `input` is the MoE input of `layer`: n_token rows of n_embd values. At most `n_predict`
    // experts are returned. Forecast.layer is `none` when nothing can be said.
    virtual Forecast predict(Layer layer, std::span<const float> input, int32_t n_token, int32_t n_predict) = 0;
};

}  // namespace outrider
