#include "core/predict/foresight.h"

#include <algorithm>

#include "core/spec_reader.h"

namespace outrider {

Foresight::Foresight(SpecReader & settings, const Surroundings & around, int32_t default_lookahead)
    : future_(around.future),
      n_layer_(around.shape.n_layer),
      lookahead_(settings.whole("lookahead", default_lookahead, 1, n_layer_)),
      counts_(around.shape.n_expert, 0) {
    if (!future_) {
        settings.refuse("needs a trace of what is to come");
    }
    const auto exists = [&](Expert e) { return e >= 0 && e < around.shape.n_expert; };
    for (const Future::Pass & pass : future_->passes) {
        bool fits = int32_t(pass.ids.size()) == n_layer_;
        for (const auto & ids : pass.ids) {
            fits = fits && std::all_of(ids.begin(), ids.end(), exists);
        }
        if (!fits) {
            settings.refuse("was given a trace of another model");
        }
    }
}

Foresight::Due Foresight::pass_began() {
    pass_++;
    return due_after(pass_ * n_layer_ - 1);
}

Foresight::Due Foresight::routed(Layer layer) { return pass_ < 0 ? Due{0, 0} : due_after(pass_ * n_layer_ + layer); }

Foresight::Due Foresight::due_after(int64_t present) {
    const int64_t n_all = int64_t(future_->passes.size()) * n_layer_;
    const int64_t begin = std::max(told_, present + 1);
    int64_t end = std::min(present + 1 + lookahead_, n_all);
    const auto next = size_t(pass_ + 1);
    if (next < future_->passes.size() && future_->passes[next].begins_request) {
        end = std::min(end, int64_t(next) * n_layer_);  // the next request is unknown
    }
    told_ = std::max(begin, end);
    return {begin, told_};
}

Forecast Foresight::truth(int64_t at) {
    Forecast f{layer_of(at), {}, {}};
    for (Expert e : choices(at)) {
        if (counts_[e]++ == 0) {
            f.experts.push_back(e);
        }
    }
    const auto more_often = [&](Expert a, Expert b) { return counts_[a] > counts_[b]; };
    if (!std::is_sorted(f.experts.begin(), f.experts.end(), more_often)) {
        std::stable_sort(f.experts.begin(), f.experts.end(), more_often);
    }
    for (Expert e : f.experts) {
        f.scores.push_back(float(counts_[e]));
        counts_[e] = 0;
    }
    return f;
}

}  // namespace outrider
