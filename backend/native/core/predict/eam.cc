#include "core/predict/eam.h"

#include <algorithm>
#include <numeric>

#include "core/spec_reader.h"

namespace outrider {

Eam::Eam(const Spec & spec, const Surroundings & around, int32_t n_predict)
    : n_layer_(around.shape.n_layer),
      n_expert_(around.shape.n_expert),
      n_predict_(forecast_size(around.shape, n_predict)),
      past_{EamCollection(0, 0, 0), EamCollection(0, 0, 0)},
      counts_(n_expert_),
      sums_(n_expert_) {
    SpecReader settings(spec, "predictor");
    const int32_t capacity = settings.whole("capacity", 120, 1, 1 << 14);
    n_match_ = size_t(settings.whole("matches", 1, 1, 1 << 14));
    own_ = settings.whole("own", 0, 0, 1) == 1;
    const size_t n_cell = size_t(n_layer_) * n_expert_;
    for (size_t phase = 0; phase < 2; phase++) {
        past_[phase] = EamCollection(n_layer_, n_expert_, capacity);
        request_[phase].assign(n_cell, 0.0f);
        own_squares_[phase].assign(n_layer_, 0.0);
        const auto array =
            settings.find_counts(phase == size_t(Phase::prefill) ? "prefill" : "decode", {-1, n_layer_, n_expert_});
        for (int64_t i = 0; array && i < array->shape[0]; i++) {
            past_[phase].add({array->values.data() + size_t(i) * n_cell, n_cell});
        }
    }
    dots_.assign(capacity, 0.0);
    known_.resize(2 * (dots_.size() + 1) * size_t(n_layer_));
    settings.finish();
}

void Eam::request_began() {
    for (Known & known : known_) {
        known.matches.clear();
    }
    for (size_t phase = 0; phase < 2; phase++) {
        auto & eam = request_[phase];
        if (std::any_of(eam.begin(), eam.end(), [](float v) { return v > 0; })) {
            past_[phase].add(eam);
        }
        std::fill(eam.begin(), eam.end(), 0.0f);
        std::fill(own_squares_[phase].begin(), own_squares_[phase].end(), 0.0);
    }
}

void Eam::pass_began(Phase phase, std::span<const int32_t>, Forecasts &) {
    phase_ = size_t(phase);
    std::fill(dots_.begin(), dots_.end(), 0.0);
    own_dot_ = 0;
    own_norm_ = 0;
}

void Eam::routed(const Routing & routing, Forecasts & out) {
    std::fill(counts_.begin(), counts_.end(), 0.0f);
    for (Expert e : routing.ids) {
        counts_[e] += 1;
    }
    see(routing.layer);
    if (routing.layer + 1 < n_layer_) {
        match(routing.layer);
        forecast(routing.layer, out);
    }
}

// Adds the layer to the pass's EAM, and then to the request's.
void Eam::see(Layer layer) {
    const EamCollection & past = past_[phase_];
    float * own = &request_[phase_][size_t(layer) * n_expert_];
    own_norm_ += own_squares_[phase_][layer];
    for (Expert e = 0; e < n_expert_; e++) {
        const double count = counts_[e];
        if (count == 0) {
            continue;
        }
        const float * cells = past.cells(layer, e);
        for (int32_t m = 0; m < past.size(); m++) {
            dots_[m] += count * double(cells[m]);
        }
        own_dot_ += count * own[e];
        own_squares_[phase_][layer] += count * (count + 2.0 * own[e]);
        own[e] += counts_[e];
    }
}

void Eam::match(Layer layer) {
    const EamCollection & past = past_[phase_];
    const double * squares = past.squares(layer);
    matches_.clear();
    for (int32_t m = 0; m < past.size(); m++) {
        consider(dots_[m], squares[m], m);
    }
    if (own_) {
        consider(own_dot_, own_norm_, past.size());
    }
}

void Eam::consider(double dot, double square, int32_t which) {
    // The square of the cosine, without the factor that all share.
    const double likeness = dot > 0 ? dot * dot / square : 0;
    if (!(likeness > (matches_.size() < n_match_ ? 0 : matches_.back().likeness))) {
        return;
    }
    auto at = matches_.end();
    while (at != matches_.begin() && (at - 1)->likeness < likeness) {
        --at;
    }
    matches_.insert(at, {likeness, which});
    if (matches_.size() > n_match_) {
        matches_.pop_back();
    }
}

void Eam::forecast(Layer present, Forecasts & out) {
    matched_.clear();
    for (const Match & match : matches_) {
        matched_.push_back(match.which);
    }
    std::sort(matched_.begin(), matched_.end());
    const bool changes = !matched_.empty() && matched_.back() == past_[phase_].size();  // this request
    const size_t slot = matched_.size() == 1 ? size_t(matched_[0]) : dots_.size();
    for (Layer l = present + 1; l < n_layer_ && !matched_.empty(); l++) {
        Known & known = known_[(phase_ * (dots_.size() + 1) + slot) * size_t(n_layer_) + l];
        if (changes || known.matches != matched_) {
            known = {matched_, sum_up(l)};
        }
        if (known.forecast.experts.empty()) {
            continue;
        }
        const float weight = 1 - float(l - present) / float(n_layer_);
        Forecast & forecast = out.emplace_back(known.forecast);
        for (float & score : forecast.scores) {
            score *= weight;
        }
    }
}

// The row of the predicted EAM, normalised.
Forecast Eam::sum_up(Layer layer) {
    const EamCollection & past = past_[phase_];
    const float * own = &request_[phase_][size_t(layer) * n_expert_];
    std::fill(sums_.begin(), sums_.end(), 0.0f);
    for (int32_t which : matched_) {
        const float * row = which < past.size() ? past.row(which, layer) : own;
        for (Expert e = 0; e < n_expert_; e++) {
            sums_[e] += row[e];
        }
    }
    const float sum = std::accumulate(sums_.begin(), sums_.end(), 0.0f);
    Forecast forecast = best_of(layer, sums_, n_predict_, 0.0f);
    for (float & score : forecast.scores) {
        score /= sum;
    }
    return forecast;
}

}  // namespace outrider
