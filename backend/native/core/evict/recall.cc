#include "core/evict/recall.h"

#include <algorithm>

#include "core/spec_reader.h"

namespace outrider {
namespace {

// Tokens after a moment that count.
constexpr int64_t horizon = 6;

}  // namespace

Recall::Recall(const Spec & spec, const Shape & shape) : Recall(RecallOptions(spec), shape) {}

Recall::Recall(const RecallOptions & o, const Shape & shape)
    : options_(o),
      amounts_(shape),
      rate_(shape, o.fast, o.slow, o.slow_share),
      expected_(shape),
      moments_(shape, o.window),
      routed_in_(size_t(shape.n_layer), -1),
      followed_(shape, 0),
      followed_at_(size_t(shape.n_layer), -1) {}

RecallOptions::RecallOptions(const Spec & spec) {
    SpecReader settings(spec, "eviction");
    window = settings.whole("window", 512, 2, 1 << 14);
    sharpness = settings.number("sharpness", 10, 0.1, 1000);
    reach = settings.number("reach", 0.45, 0, 0.99);
    follow = settings.number("follow", 2, 0, 1000);
    alike = settings.number("alike", 0.5, 0, 10);
    fast = settings.number("fast", 0.75, 0.01, 0.9999);
    slow = settings.number("slow", 0.95, 0.01, 0.9999);
    slow_share = settings.number("slow_share", 0.9, 0.001, 0.999);
    settings.finish();
}

void Recall::pass_began(Phase) {
    pass_++;
    is_under_way_ = false;
    moments_.pass_began();
}

void Recall::routed(const Routing & routing, std::span<const Demand> demands) {
    const Layer layer = routing.layer;
    routed_in_[size_t(layer)] = pass_;
    is_under_way_ = true;
    expected_.routed(layer);
    rate_.pass(layer);
    amounts_.each(routing, demands, [&](Expert e, double amount) { rate_.add(layer, e, amount); });
    moments_.routed(routing);
    moments_.match(options_.sharpness, matches_);
    for (const Match & m : matches_) {
        for (Expert e : moments_.experts(layer, m.token)) {
            rate_.add(layer, e, options_.alike * m.share);
        }
    }
}

double Recall::keep(Layer layer, Part, Expert expert) const {
    const bool is_reached = routed_in_[size_t(layer)] == pass_;
    const int64_t state = 3 * pass_ + (is_reached ? 2 : is_under_way_ ? 1 : 0);
    if (followed_at_[size_t(layer)] != state) {
        followed_at_[size_t(layer)] = state;
        follow(layer, is_under_way_ && !is_reached ? 0 : 1);
    }
    return rate_.of(layer, expert) + options_.follow * followed_.at(layer, expert) + expected_.bonus(layer, expert);
}

// A layer that this pass has not reached needs next what it needed at the moments themselves.
void Recall::follow(Layer layer, int64_t nearest) const {
    const auto followed = followed_.row(layer);
    std::ranges::fill(followed, 0.0);
    for (const Match & m : matches_) {
        double share = m.share * (1 - options_.reach);
        for (int64_t ahead = nearest; ahead < nearest + horizon && m.token + ahead <= moments_.present(); ahead++) {
            for (Expert e : moments_.experts(layer, m.token + ahead)) {
                followed[size_t(e)] += share;
            }
            share *= options_.reach;
        }
    }
}

}  // namespace outrider
