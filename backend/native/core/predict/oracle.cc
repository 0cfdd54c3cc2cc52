#include "core/predict/oracle.h"

#include <algorithm>

#include "core/predict/ranking.h"
#include "core/splitmix.h"

namespace outrider {

Oracle::Oracle(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : settings_(spec, "predictor"),
      n_expert_used_(size_t(around.shape.n_expert_used)),
      n_predict_(size_t(forecast_size(around.shape, n_predict))),
      foresight_(settings_, around, around.shape.n_layer) {
    settings_.finish();
}

void Oracle::tell(Foresight::Due due, Forecasts & out) {
    for (int64_t at = due.begin; at < due.end; at++) {
        Forecast f = foresight_.truth(at);
        f.experts.resize(std::min(f.experts.size(), n_predict_ * (foresight_.choices(at).size() / n_expert_used_)));
        f.scores.resize(f.experts.size());
        if (!f.experts.empty()) {
            out.push_back(std::move(f));
        }
    }
}

SetAccuracy::SetAccuracy(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : settings_(spec, "predictor"),
      n_expert_(around.shape.n_expert),
      n_expert_used_(around.shape.n_expert_used),
      n_predict_(forecast_size(around.shape, n_predict)),
      accuracy_(settings_.number("accuracy", 1, 0, 1)),
      seed_(uint64_t(settings_.whole("seed", 0, 0, INT32_MAX))),
      foresight_(settings_, around, 1),
      votes_(size_t(around.shape.n_expert)) {
    settings_.finish();
}

void SetAccuracy::tell(Foresight::Due due, Forecasts & out) {
    for (int64_t at = due.begin; at < due.end; at++) {
        out.push_back(guess(at));
    }
}

Forecast SetAccuracy::guess(int64_t at) {
    const auto choices = foresight_.choices(at);
    const auto n_used = size_t(n_expert_used_);
    const auto layer = foresight_.layer_of(at);
    const Asked tokens(int32_t(choices.size() / n_used));
    const uint64_t state = splitmix(splitmix(seed_) ^ uint64_t(at));
    if (tokens.size() <= 1) {
        Forecast f{layer, {}, {}};
        guess(choices, n_predict_, state);
        for (Expert e : named_) {
            f.experts.push_back(e);
            f.scores.push_back(float(n_predict_ - int32_t(f.scores.size())));
        }
        return f;
    }
    std::fill(votes_.begin(), votes_.end(), 0.0f);
    for (int32_t i = 0; i < tokens.size(); i++) {
        const auto right = choices.subspan(size_t(tokens[i]) * n_used, n_used);
        guess(right, std::min(n_predict_, n_expert_used_), splitmix(state) ^ uint64_t(i));
        for (Expert e : named_) {
            votes_[size_t(e)]++;
        }
    }
    return best_of(layer, votes_, n_expert_, 0.0f);
}

void SetAccuracy::guess(std::span<const Expert> right, int32_t n, uint64_t state) {
    wrong_.clear();
    for (Expert e = 0; e < n_expert_; e++) {
        if (std::find(right.begin(), right.end(), e) == right.end()) {
            wrong_.push_back(e);
        }
    }
    named_.clear();
    size_t n_right = 0;
    for (int32_t rank = 0; rank < n; rank++) {
        state = splitmix(state);
        const bool hit = double(state >> 11) * 0x1p-53 < accuracy_;
        if (wrong_.empty() || (hit && n_right < right.size())) {
            named_.push_back(right[n_right++]);
        } else {
            const auto which = ptrdiff_t(splitmix(~state) % wrong_.size());
            named_.push_back(wrong_[size_t(which)]);
            wrong_.erase(wrong_.begin() + which);
        }
    }
}

}  // namespace outrider
