#include "oracle.h"

#include <algorithm>

#include "../splitmix.h"
#include "ranking.h"

namespace outrider {

Oracle::Oracle(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : settings_(spec, "predictor"),
      n_predict_(size_t(forecast_size(around.shape, n_predict))),
      foresight_(settings_, around, around.shape.n_layer) {
    settings_.finish();
}

void Oracle::tell(Foresight::Due due, Forecasts & out) {
    for (int64_t at = due.begin; at < due.end; at++) {
        Forecast f = foresight_.truth(at);
        f.experts.resize(std::min(f.experts.size(), n_predict_));
        f.scores.resize(f.experts.size());
        if (!f.experts.empty()) {
            out.push_back(std::move(f));
        }
    }
}

SetAccuracy::SetAccuracy(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : settings_(spec, "predictor"),
      n_expert_(around.shape.n_expert),
      n_predict_(forecast_size(around.shape, n_predict)),
      accuracy_(settings_.number("accuracy", 1, 0, 1)),
      seed_(uint64_t(settings_.whole("seed", 0, 0, INT32_MAX))),
      foresight_(settings_, around, 1) {
    settings_.finish();
}

void SetAccuracy::tell(Foresight::Due due, Forecasts & out) {
    for (int64_t at = due.begin; at < due.end; at++) {
        out.push_back(guess(at));
    }
}

Forecast SetAccuracy::guess(int64_t at) {
    const Forecast right = foresight_.truth(at);
    std::vector<Expert> wrong;
    for (Expert e = 0; e < n_expert_; e++) {
        if (std::find(right.experts.begin(), right.experts.end(), e) == right.experts.end()) {
            wrong.push_back(e);
        }
    }
    Forecast f{right.layer, {}, {}};
    size_t n_right = 0;
    uint64_t state = splitmix(splitmix(seed_) ^ uint64_t(at));
    for (int32_t rank = 0; rank < n_predict_; rank++) {
        state = splitmix(state);
        const bool hit = double(state >> 11) * 0x1p-53 < accuracy_;
        if (wrong.empty() || (hit && n_right < right.experts.size())) {
            f.experts.push_back(right.experts[n_right++]);
        } else {
            const auto which = ptrdiff_t(splitmix(~state) % wrong.size());
            f.experts.push_back(wrong[size_t(which)]);
            wrong.erase(wrong.begin() + which);
        }
        f.scores.push_back(float(n_predict_ - rank));
    }
    return f;
}

}  // namespace outrider
