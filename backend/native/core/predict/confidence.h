// How far a predictor can be trusted: of the experts that it ranked first, second, ... how many
// were used. Prefetching an expert that is not used costs the link as much as one that is.
#pragma once

#include "predictor.h"

namespace outrider {

class Confidence {
  public:
    // Ranks whose precision is below `min_precision` are dropped from forecasts; 0: none.
    Confidence(int32_t n_layer, double min_precision);

    void set_min_precision(double min_precision) { min_precision_ = min_precision; }
    // Remembers the forecast, to judge it later, and returns what of it is worth fetching.
    Forecast worthwhile(const Forecast & forecast);
    // What the layer really needed; `needed[e]` is not 0 for an expert that was.
    void judge(Layer layer, std::span<const uint8_t> needed);

    // Of the forecasts judged so far, as a moving average; a rank starts trusted.
    double precision(size_t rank) const { return rank < precision_.size() ? precision_[rank] : 1.0; }

  private:
    static constexpr double weight = 1.0 / 256;  // of one judgement

    double min_precision_;
    std::vector<double> precision_;               // [rank]
    std::vector<std::vector<Expert>> forecasts_;  // [layer], not yet judged
};

}  // namespace outrider
