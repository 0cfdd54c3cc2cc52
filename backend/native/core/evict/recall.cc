// Keeps what followed moments like the present one. Text repeats itself, and so does routing: when the experts of the
// present token are those of an earlier token, the next tokens tend to need what followed that one. An expert's worth
// is what followed at similar moments, plus its recent rate of use (use_rate.h). The first part knows the next few
// tokens, which decide for a small cache; the second the next dozens, which decide for a large one.
//
// Moments are the last `window` tokens, of prompts and of earlier requests too. The likeness of a moment to the present
// one is the share of experts in common, weighted by the router, averaged over the layers that this token has passed
// and, with decreasing weight, over those that the token before passed (compared with the moment's predecessor).
// Moments weigh exp(sharpness * likeness), so the few most alike decide. What followed at distance h counts
// reach^(h - 1).
//
// Cost: a routing visits the layer's uses of the present experts within the window, and all moments once. The worths of
// a layer are computed on demand, at most twice per pass.
#include <algorithm>

#include "core/evict/duel.h"
#include "core/evict/expected.h"
#include "core/evict/moments.h"
#include "core/evict/registry.h"
#include "core/evict/use_rate.h"
#include "core/spec_reader.h"

namespace outrider {
namespace {

// Tokens after a moment that count.
constexpr int64_t horizon = 6;

struct RecallOptions {
    int32_t window;  // number of moments
    double sharpness;  // of the weights of moments
    double reach;  // factor for each further token
    double follow;  // weight of what followed, beside the rate of use
    double alike;  // weight of a use by a similar moment, beside any use
    double fast, slow, slow_share;  // of the rate of use: see use_rate.h

    explicit RecallOptions(const Spec & spec) {
        SpecReader settings(spec, "eviction");
        window = settings.whole("window", 2048, 2, 1 << 14);
        sharpness = settings.number("sharpness", 15, 0.1, 1000);
        reach = settings.number("reach", 0.45, 0, 0.99);
        follow = settings.number("follow", 2, 0, 1000);
        alike = settings.number("alike", 0.25, 0, 10);
        fast = settings.number("fast", 0.75, 0.01, 0.9999);
        slow = settings.number("slow", 0.95, 0.01, 0.9999);
        slow_share = settings.number("slow_share", 0.9, 0.001, 0.999);
        settings.flag("duel", true);
        settings.finish();
    }
};

class Recall final : public Eviction {
  public:
    // Numbers: window (2048), sharpness (15), reach (0.45), follow (2), alike (0.25), fast (0.75), slow
    // (0.95), slow_share (0.9); duel, 0: never leaves the decision to LRU (1: duel.h).
    Recall(const Spec & spec, const Shape & shape) : Recall(RecallOptions(spec), shape) {}

    bool wants_weights() const override { return true; }
    void request_began() override { moments_.forget_likeness(); }

    void pass_began(Phase) override {
        pass_++;
        is_under_way_ = false;
        moments_.pass_began();
    }

    void routed(const Routing & routing, std::span<const Demand> demands) override {
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

    void forecast(const Forecast & forecast) override {
        expected_.forecast(forecast);
        if (forecast.certain) {
            rate_.pass_ahead(forecast.layer);
        }
    }
    void disappointed(Layer layer, Expert expert) override { expected_.in_vain(layer, expert); }

    double keep(Layer layer, Part, Expert expert) const override {
        const bool is_reached = routed_in_[size_t(layer)] == pass_;
        const int64_t state = 3 * pass_ + (is_reached ? 2 : is_under_way_ ? 1 : 0);
        if (followed_at_[size_t(layer)] != state) {
            followed_at_[size_t(layer)] = state;
            follow(layer, is_under_way_ && !is_reached ? 0 : 1);
        }
        return rate_.of(layer, expert) + options_.follow * followed_.at(layer, expert) + expected_.bonus(layer, expert);
    }

  private:
    Recall(const RecallOptions & o, const Shape & shape)
        : options_(o),
          amounts_(shape),
          rate_(shape, o.fast, o.slow, o.slow_share),
          expected_(shape),
          moments_(shape, o.window),
          routed_in_(size_t(shape.n_layer), -1),
          followed_(shape, 0),
          followed_at_(size_t(shape.n_layer), -1) {}

    // A layer that this pass has not reached next needs the experts that it needed at the moments themselves.
    void follow(Layer layer, int64_t nearest) const {
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

    RecallOptions options_;
    Amounts amounts_;
    UseRate rate_;
    Expected expected_;
    Moments moments_;
    std::vector<Match> matches_;  // of the last routed layer
    int64_t pass_ = 0;
    bool is_under_way_ = false;  // a layer of the pass was routed
    std::vector<int64_t> routed_in_;  // [layer]: the last pass
    // The experts that followed, computed on demand for a layer in the state followed_at_.
    mutable PerExpert<double> followed_;
    mutable std::vector<int64_t> followed_at_;  // [layer]: 3 * pass, plus 1 if the pass is under way, or 2 if
                                                // it reached the layer
};

}  // namespace

std::unique_ptr<Eviction> make_recall(const Spec & spec, const Surroundings & around) {
    return duelling(spec, std::make_unique<Recall>(spec, around.shape), around);
}

}  // namespace outrider
