// Layers whose experts are known from the token: their router is a table from token ids to experts (DeepSeek-V4).
#pragma once

#include <vector>

#include "core/predict/predictor.h"
#include "core/spec.h"

namespace outrider {

class TokenRouters {
  public:
    // Throws std::invalid_argument if a table has no whole rows.
    explicit TokenRouters(const Surroundings & around);

    bool knows(Layer layer) const { return !tables_.empty() && !tables_[size_t(layer)].empty(); }
    // Append the experts that these layers will choose for the tokens of a pass, if all are known.
    void tell(std::span<const int32_t> tokens, Forecasts & out);

  private:
    std::vector<std::span<const Expert>> tables_;  // [layer][token id][used]; empty: another router
    std::vector<size_t> used_;                     // [layer]
    std::vector<Expert> choices_;                  // of a layer
    std::vector<int32_t> counts_;                  // [n_expert], 0 between calls
};

}  // namespace outrider
