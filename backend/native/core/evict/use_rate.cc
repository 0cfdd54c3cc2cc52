#include "core/evict/use_rate.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace outrider {

UseRate::UseRate(const Shape & shape, double fast, double slow, double slow_share)
    : decay_{fast, slow},
      // An expert that every pass uses has the rate 1.
      fresh_{(1 - fast) * (1 - slow_share), (1 - slow) * slow_share},
      scales_(size_t(shape.n_layer), fresh_),
      ahead_(size_t(shape.n_layer), 0),
      sums_(shape, {}) {}

void UseRate::pass(Layer layer) {
    if (!std::exchange(ahead_[size_t(layer)], 0)) {
        decay(layer);
    }
}

void UseRate::pass_ahead(Layer layer) {
    if (!std::exchange(ahead_[size_t(layer)], 1)) {
        decay(layer);
    }
}

void UseRate::decay(Layer layer) {
    Scale & s = scales_[size_t(layer)];
    s.fast *= decay_.fast;
    s.slow *= decay_.slow;
    if (s.fast < 1e-12 * fresh_.fast || s.slow < 1e-12 * fresh_.slow) {
        for (Sums & sums : sums_.row(layer)) {
            sums.fast *= s.fast / fresh_.fast;
            sums.slow *= s.slow / fresh_.slow;
        }
        s = fresh_;
    }
}

void UseRate::add(Layer layer, Expert expert, double amount) {
    const Scale & s = scales_[size_t(layer)];
    Sums & sums = sums_.at(layer, expert);
    sums.fast += amount * (fresh_.fast / s.fast);
    sums.slow += amount * (fresh_.slow / s.slow);
}

void Amounts::even_out(std::span<const float> weights, std::span<double> strengths) {
    double sum = 0;
    for (float w : weights) {
        sum += w >= 0 ? double(w) : NAN;
    }
    const bool known = std::isfinite(sum) && sum > 0;
    for (size_t i = 0; i < strengths.size(); i++) {
        strengths[i] = known ? double(weights[i]) * double(weights.size()) / sum : 1;
    }
}

void Amounts::sum_up(const Routing & routing) {
    const size_t n_used = routing.n_token > 0 ? routing.ids.size() / size_t(routing.n_token) : 0;
    const bool weighted = routing.weights.size() == routing.ids.size();
    strengths_.resize(n_used);
    for (size_t i = 0; n_used > 0 && i + n_used <= routing.ids.size(); i += n_used) {
        even_out(weighted ? routing.weights.subspan(i, n_used) : std::span<const float>(), strengths_);
        for (size_t j = 0; j < n_used; j++) {
            sums_[size_t(routing.ids[i + j])] += strengths_[j];
        }
    }
}

double Amounts::fourth_root(double x) { return std::sqrt(std::sqrt(x)); }

}  // namespace outrider
