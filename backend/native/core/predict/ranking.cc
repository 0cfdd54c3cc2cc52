#include "core/predict/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/spec_reader.h"

namespace outrider {
namespace {

constexpr float lowest = -std::numeric_limits<float>::max();

float finite(float score) { return std::isfinite(score) ? score : lowest; }

}  // namespace

Forecast chosen_by(Layer layer, std::span<const Expert> choices, std::vector<int32_t> & counts) {
    Forecast f{layer, {}, {}};
    for (Expert e : choices) {
        if (counts[size_t(e)]++ == 0) {
            f.experts.push_back(e);
        }
    }
    const auto more_often = [&](Expert a, Expert b) { return counts[size_t(a)] > counts[size_t(b)]; };
    if (!std::is_sorted(f.experts.begin(), f.experts.end(), more_often)) {
        std::stable_sort(f.experts.begin(), f.experts.end(), more_often);
    }
    for (Expert e : f.experts) {
        f.scores.push_back(float(counts[size_t(e)]));
        counts[size_t(e)] = 0;
    }
    return f;
}

Forecast best_of(Layer layer, std::span<const float> scores, int32_t n, float floor) {
    constexpr int32_t few = 32;
    const auto n_expert = int32_t(scores.size());
    n = std::min(n, n_expert);
    Forecast best{layer, {}, {}};
    if (n > few) {
        std::vector<std::pair<float, Expert>> order;
        for (Expert e = 0; e < n_expert; e++) {
            if (const float score = finite(scores[e]); score > floor) {
                order.emplace_back(-score, e);
            }
        }
        n = std::min(n, int32_t(order.size()));
        std::partial_sort(order.begin(), order.begin() + n, order.end());
        for (int32_t i = 0; i < n; i++) {
            best.experts.push_back(order[i].second);
            best.scores.push_back(-order[i].first);
        }
        return best;
    }
    // Few of many is the common case: one comparison rejects most experts.
    Expert experts[few];
    float values[few];
    int32_t n_found = 0;
    for (Expert e = 0; e < n_expert; e++) {
        const float score = finite(scores[e]);
        if (!(score > floor) || (n_found == n && score <= values[n - 1])) {
            continue;
        }
        int32_t at = n_found < n ? n_found++ : n - 1;
        for (; at > 0 && values[at - 1] < score; at--) {
            values[at] = values[at - 1];
            experts[at] = experts[at - 1];
        }
        values[at] = score;
        experts[at] = e;
    }
    best.experts.assign(experts, experts + n_found);
    best.scores.assign(values, values + n_found);
    return best;
}

Forecast best_of(Layer layer, std::span<const float> scores, int32_t n) {
    return best_of(layer, scores, n, -std::numeric_limits<float>::infinity());
}

void Poll::clear() {
    std::fill(votes_.begin(), votes_.end(), 0.0f);
    std::fill(named_.begin(), named_.end(), uint8_t(0));
}

void Poll::vote(int32_t n) {
    for (float & score : scores_) {
        score = finite(score);
    }
    const float top = *std::max_element(scores_.begin(), scores_.end());
    for (size_t e = 0; e < scores_.size(); e++) {
        votes_[e] += std::exp(scores_[e] - top);
    }
    for (Expert e : best_of(none, scores_, n, lowest).experts) {
        named_[size_t(e)] = 1;
    }
}

Forecast Poll::result(Layer layer, int32_t n) {
    if (std::count(named_.begin(), named_.end(), 1) == 0) {
        return best_of(layer, votes_, n);  // no token had scores
    }
    for (size_t e = 0; e < votes_.size(); e++) {
        votes_[e] = named_[e] ? votes_[e] : lowest;
    }
    return best_of(layer, votes_, int32_t(votes_.size()), lowest);
}

void choose_by(const RouterBias & bias, std::span<float> scores) {
    for (size_t e = 0; e < bias.added.size() && e < scores.size(); e++) {
        scores[e] += bias.added[e];
    }
    if (bias.selected.size() != scores.size()) {
        return;  // both gates keep the order
    }
    const float best = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float & s : scores) {
        s = bias.sigmoid ? 1 / (1 + std::exp(-s)) : std::exp(s - best);
        sum += s;
    }
    for (size_t e = 0; e < scores.size(); e++) {
        scores[e] = (bias.sigmoid ? scores[e] : scores[e] / sum) + bias.selected[e];
    }
}

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

}  // namespace outrider
