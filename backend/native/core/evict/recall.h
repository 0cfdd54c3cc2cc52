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
#pragma once

#include "core/evict/eviction.h"
#include "core/evict/expected.h"
#include "core/evict/moments.h"
#include "core/evict/use_rate.h"
#include "core/spec.h"

namespace outrider {

struct RecallOptions {
    int32_t window;  // number of moments
    double sharpness;  // of the weights of moments
    double reach;  // factor for each further token
    double follow;  // weight of what followed, beside the rate of use
    double alike;  // weight of a use by a similar moment, beside any use
    double fast, slow, slow_share;  // of the rate of use: see use_rate.h

    explicit RecallOptions(const Spec & spec);
};

class Recall final : public Eviction {
  public:
    // Numbers: window (512), sharpness (10), reach (0.45), follow (2), alike (0.5), fast (0.75), slow
    // (0.95), slow_share (0.9).
    Recall(const Spec & spec, const Shape & shape);

    bool wants_weights() const override { return true; }
    void request_began() override { moments_.forget_likeness(); }
    void pass_began(Phase) override;
    void routed(const Routing & routing, std::span<const Demand> demands) override;
    void forecast(const Forecast & forecast) override { expected_.forecast(forecast); }
    void disappointed(Layer layer, Expert expert) override { expected_.in_vain(layer, expert); }
    double keep(Layer layer, Part, Expert expert) const override;

  private:
    Recall(const RecallOptions & options, const Shape & shape);
    void follow(Layer layer, int64_t nearest) const;

    RecallOptions options_;
    Amounts amounts_;
    UseRate rate_;
    Expected expected_;
    Moments moments_;
    std::vector<Match> matches_;  // of the last routed layer
    int64_t pass_ = 0;
    bool is_under_way_ = false;  // a layer of the pass was routed
    std::vector<int64_t> routed_in_;  // [layer]: the last pass
    // What followed, computed on demand for a layer in the state followed_at_.
    mutable PerExpert<double> followed_;
    mutable std::vector<int64_t> followed_at_;  // [layer]: 3 * pass, plus 1 if the pass is under way, or 2 if
                                                // it reached the layer
};

}  // namespace outrider
