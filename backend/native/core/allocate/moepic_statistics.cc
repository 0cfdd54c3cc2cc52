#include "core/allocate/moepic_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace outrider {
namespace {

// log2 of mu * rho^(nu / omega), but for the present time, which is the same for all: mu does not
// change between activations, and nu grows for all alike. So the order of the keys is that of the
// priorities, and a key changes only when its expert is activated. rho = 0.25 and omega = 128
// (section 4.1) make it log2(mu) + last / 64. The exponent of mu is kept apart, so that priorities
// that are equal have equal keys.
double key(uint32_t used, uint64_t last) {
    if (used == 0) {
        return -std::numeric_limits<double>::infinity();
    }
    int exponent = 0;
    const double mantissa = std::frexp(double(used), &exponent);
    return std::log2(mantissa) + (double(exponent) + double(last) / 64);
}

double ratio(double part, uint64_t all) { return all > 0 ? part / double(all) : 0; }

}  // namespace

MoepicStatistics::MoepicStatistics(int32_t n_layer, int32_t n_expert)
    : n_layer_(n_layer), n_expert_(n_expert), n_rank_(std::min(n_expert, max_rank)) {
    if (n_layer < 1 || n_expert < 1) {
        throw std::invalid_argument("There is nothing to count in a model without experts");
    }
    const size_t n_place = size_t(n_layer) * size_t(n_expert);
    state_.used.assign(n_place, 0);
    state_.last.assign(n_place, 0);
    state_.clock.assign(size_t(n_layer), 0);
    state_.n_judged.assign(size_t(n_layer), 0);
    state_.found.assign(n_place, 0);
    state_.right.assign(size_t(n_layer) * size_t(n_rank_), 0);
    state_.resident.assign(n_place * size_t(n_rank_), 0);
    keys_.assign(n_place, key(0, 0));
    forecasts_.resize(size_t(n_layer));
}

void MoepicStatistics::routed(const Routing & routing) {
    const Layer layer = routing.layer;
    if (layer < 0 || layer >= n_layer_ || routing.n_token < 1) {
        return;
    }
    const auto is_expert = [&](Expert e) { return e >= 0 && e < n_expert_; };
    std::vector<Expert> & forecast = forecasts_[size_t(layer)];
    if (routing.n_token == 1) {
        state_.n_judged[size_t(layer)]++;
        for (Expert e : routing.ids) {
            if (is_expert(e)) {
                state_.found[size_t(layer) * size_t(n_expert_) + size_t(rank_of(layer, e))]++;
            }
        }
        for (size_t y = 0; y < forecast.size(); y++) {
            const Expert e = forecast[y];
            const size_t row = size_t(layer) * size_t(n_rank_) + y;
            if (is_expert(e)) {
                state_.right[row] += std::find(routing.ids.begin(), routing.ids.end(), e) != routing.ids.end();
                state_.resident[row * size_t(n_expert_) + size_t(rank_of(layer, e))]++;
            }
        }
    }
    forecast.clear();
    const size_t n_used = routing.ids.size() / size_t(routing.n_token);
    for (size_t i = 0; i < routing.ids.size(); i++) {
        state_.clock[size_t(layer)] += n_used > 0 && i % n_used == 0;
        if (is_expert(routing.ids[i])) {
            learn(layer, routing.ids[i]);
        }
    }
}

void MoepicStatistics::forecast(const Forecast & forecast) {
    if (forecast.layer >= 0 && forecast.layer < n_layer_) {
        const size_t n = std::min(forecast.experts.size(), size_t(n_rank_));
        forecasts_[size_t(forecast.layer)].assign(forecast.experts.begin(), forecast.experts.begin() + n);
    }
}

double MoepicStatistics::hit_rate(Layer layer, int32_t n_cached) const {
    if (layer < 0 || layer >= n_layer_) {
        return 0;
    }
    n_cached = std::clamp(n_cached, 0, n_expert_);
    const auto row = state_.found.begin() + int64_t(layer) * n_expert_;
    const uint64_t all = std::accumulate(row, row + n_expert_, uint64_t(0));
    return ratio(double(std::accumulate(row, row + n_cached, uint64_t(0))), all);
}

double MoepicStatistics::accuracy(Layer layer, int32_t rank) const {
    if (layer < 0 || layer >= n_layer_ || rank < 0 || rank >= n_rank_) {
        return 0;
    }
    const size_t row = size_t(layer) * size_t(n_rank_) + size_t(rank);
    return ratio(double(state_.right[row]), state_.n_judged[size_t(layer)]);
}

double MoepicStatistics::predicted_hit_rate(Layer layer, int32_t rank, int32_t n_cached) const {
    if (layer < 0 || layer >= n_layer_ || rank < 0 || rank >= n_rank_) {
        return 0;
    }
    n_cached = std::clamp(n_cached, 0, n_expert_);
    const auto row = state_.resident.begin() + (int64_t(layer) * n_rank_ + rank) * n_expert_;
    return ratio(double(std::accumulate(row, row + n_cached, uint64_t(0))), state_.n_judged[size_t(layer)]);
}

std::vector<Expert> MoepicStatistics::ranked(Layer layer) const {
    std::vector<Expert> experts(static_cast<size_t>(n_expert_));
    std::iota(experts.begin(), experts.end(), 0);
    const double * keys = keys_.data() + size_t(layer) * size_t(n_expert_);
    std::stable_sort(experts.begin(), experts.end(), [&](Expert a, Expert b) { return keys[a] > keys[b]; });
    return experts;
}

std::vector<float> MoepicStatistics::reuse() const { return {state_.found.begin(), state_.found.end()}; }

void MoepicStatistics::restore(State state) {
    const bool fits = state.used.size() == state_.used.size() && state.last.size() == state_.last.size() &&
                      state.clock.size() == state_.clock.size() && state.n_judged.size() == state_.n_judged.size() &&
                      state.found.size() == state_.found.size() && state.right.size() == state_.right.size() &&
                      state.resident.size() == state_.resident.size();
    if (!fits) {
        throw std::invalid_argument("The statistics are of a model of another shape");
    }
    state_ = std::move(state);
    for (size_t place = 0; place < keys_.size(); place++) {
        keys_[place] = key(state_.used[place], state_.last[place]);
    }
    for (std::vector<Expert> & forecast : forecasts_) {
        forecast.clear();
    }
}

void MoepicStatistics::learn(Layer layer, Expert expert) {
    const size_t place = size_t(layer) * size_t(n_expert_) + size_t(expert);
    state_.used[place]++;
    state_.last[place] = state_.clock[size_t(layer)];
    keys_[place] = key(state_.used[place], state_.last[place]);
}

int32_t MoepicStatistics::rank_of(Layer layer, Expert expert) const {
    const double * keys = keys_.data() + size_t(layer) * size_t(n_expert_);
    const double own = keys[expert];
    int32_t n_before = 0;
    for (Expert e = 0; e < expert; e++) {
        n_before += keys[e] >= own;
    }
    for (Expert e = expert + 1; e < n_expert_; e++) {
        n_before += keys[e] > own;
    }
    return n_before;
}

}  // namespace outrider
