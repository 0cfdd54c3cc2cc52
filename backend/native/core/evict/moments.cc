#include "core/evict/moments.h"

#include <algorithm>
#include <cmath>

#include "core/evict/use_rate.h"

namespace outrider {
namespace {

// The weight of the likeness so far, beside that of one more layer.
constexpr double persistence = 0.65;
// Moments below exp(-5) of the best weight are no matches.
constexpr double deepest = 5;
constexpr size_t block_size = 16;

}  // namespace

Moments::Moments(const Shape & shape, int32_t window)
    : n_expert_(size_t(shape.n_expert)),
      n_used_(size_t(shape.n_expert_used)),
      window_(window),
      uses_(size_t(shape.n_layer) * n_expert_),
      token_of_(size_t(shape.n_layer) * size_t(window), -1),
      experts_(token_of_.size() * n_used_, none),
      likeness_((size_t(window) + block_size - 1) / block_size * block_size, 0),
      tops_(likeness_.size() / block_size, 0) {
    for (Layer l = 0; l < shape.n_layer; l++) {
        used_.push_back(size_t(shape.used(l)));
    }
}

void Moments::pass_began() {
    first_ += n_token_;
    n_token_ = 0;
}

void Moments::forget_likeness() { std::ranges::fill(likeness_, 0.0); }

void Moments::routed(const Routing & routing) {
    const size_t n_used = used_[size_t(routing.layer)];
    const int64_t n_row = std::min<int64_t>(routing.n_token, int64_t(routing.ids.size() / n_used));
    if (n_row <= 0) {
        return;
    }
    if (n_token_ == 0) {
        n_token_ = n_row;
        if (n_row > 1) {
            forget_likeness();  // its token does not precede the last one
        }
    }
    const bool weighted = routing.weights.size() == routing.ids.size();
    // A layer may have only the last tokens of a pass. A prompt may exceed the window.
    for (int64_t back = std::min({n_row, n_token_, window_}); back-- > 0;) {
        const size_t at = size_t(n_row - 1 - back) * n_used;
        remember(routing.layer, present() - back, routing.ids.subspan(at, n_used),
                 weighted ? routing.weights.subspan(at, n_used) : std::span<const float>());
    }
    compare(routing.layer, routing.ids.subspan(size_t(n_row - 1) * n_used, n_used));
}

void Moments::remember(Layer layer, int64_t token, std::span<const Expert> experts, std::span<const float> weights) {
    strengths_.resize(experts.size());
    Amounts::even_out(weights, strengths_);
    const size_t at = size_t(layer) * size_t(window_) + size_t(token % window_);
    token_of_[at] = token;
    std::ranges::copy(experts, experts_.begin() + int64_t(at * n_used_));
    for (size_t j = 0; j < experts.size(); j++) {
        strengths_[j] = std::sqrt(strengths_[j]);
        Uses & u = uses(layer, experts[j]);
        while (u.begin < u.all.size() && u.all[u.begin].token <= token - window_) {
            u.begin++;
        }
        if (u.begin > 32 && u.begin * 2 > u.all.size()) {
            u.all.erase(u.all.begin(), u.all.begin() + int64_t(u.begin));
            u.begin = 0;
        }
        u.all.push_back({token, strengths_[j]});
    }
}

void Moments::compare(Layer layer, std::span<const Expert> experts) {
    for (double & l : likeness_) {
        l *= persistence;
    }
    const int64_t now = present();
    for (size_t j = 0; j < experts.size(); j++) {
        const double strength = strengths_[j] * (1 - persistence) / double(experts.size());
        const Uses & u = uses(layer, experts[j]);
        for (size_t i = u.begin; i < u.all.size(); i++) {
            const int64_t age = now - u.all[i].token;
            if (age > 0 && age < window_) {
                likeness_[size_t(age)] += strength * u.all[i].strength;
            }
        }
    }
}

void Moments::match(double sharpness, std::vector<Match> & matches) const {
    matches.clear();
    // By blocks: most hold no match.
    double best = 0;
    for (size_t block = 0; block < tops_.size(); block++) {
        double top[4] = {};
        for (size_t i = block * block_size; i < (block + 1) * block_size; i += 4) {
            for (size_t j = 0; j < 4; j++) {
                top[j] = top[j] < likeness_[i + j] ? likeness_[i + j] : top[j];
            }
        }
        tops_[block] = std::max({top[0], top[1], top[2], top[3]});
        best = std::max(best, tops_[block]);
    }
    const double least = best - deepest / sharpness;
    double sum = 0;
    for (size_t block = 0; block < tops_.size(); block++) {
        for (size_t age = block * block_size; tops_[block] >= least && age < (block + 1) * block_size; age++) {
            if (likeness_[age] > 0 && likeness_[age] >= least) {
                matches.push_back({present() - int64_t(age), std::exp(sharpness * (likeness_[age] - best))});
                sum += matches.back().share;
            }
        }
    }
    for (Match & m : matches) {
        m.share /= sum;
    }
}

std::span<const Expert> Moments::experts(Layer layer, int64_t token) const {
    if (token < 0) {
        return {};
    }
    const size_t at = size_t(layer) * size_t(window_) + size_t(token % window_);
    return token_of_[at] == token ? std::span(&experts_[at * n_used_], used_[size_t(layer)])
                                  : std::span<const Expert>();
}

}  // namespace outrider
