// Past tokens by their routing, and which of them resemble the present one.
#pragma once

#include <vector>

#include "core/types.h"

namespace outrider {

// A past token that resembles the present one.
struct Match {
    int64_t token;
    double share;  // the shares of all matches sum to 1
};

class Moments {
  public:
    Moments(const Shape & shape, int32_t window);

    void pass_began();
    // Remember the layer's tokens, and compare the last one with those before.
    void routed(const Routing & routing);
    // The next pass is unrelated to this one.
    void forget_likeness();

    // The tokens most like the present one, by its layers so far, with weights exp(sharpness * likeness).
    void match(double sharpness, std::vector<Match> & matches) const;
    // The experts that the token used in the layer; empty if unknown.
    std::span<const Expert> experts(Layer layer, int64_t token) const;
    // The last token of the pass, or of the pass before while no layer of this one was routed.
    int64_t present() const { return first_ + n_token_ - 1; }

  private:
    struct Use {
        int64_t token;
        double strength;
    };
    // Uses of an expert, the oldest first; those before `begin` left the window.
    struct Uses {
        std::vector<Use> all;
        size_t begin = 0;
    };
    void remember(Layer layer, int64_t token, std::span<const Expert> experts, std::span<const float> weights);
    void compare(Layer layer, std::span<const Expert> experts);
    Uses & uses(Layer layer, Expert expert) { return uses_[size_t(layer) * n_expert_ + size_t(expert)]; }

    size_t n_expert_;
    std::vector<size_t> used_;  // [layer]: experts of a token
    size_t n_used_;             // the most of them
    int64_t window_;
    int64_t first_ = 0;        // the first token of the pass
    int64_t n_token_ = 0;      // of the pass, as its first layer had; 0: unknown yet
    std::vector<Uses> uses_;   // [layer * n_expert + expert]
    std::vector<int64_t> token_of_;  // [layer * window + token % window]
    std::vector<Expert> experts_;    // [layer * window + token % window][n_used_]
    std::vector<double> likeness_;   // [age]: of the token `age` before the present one
    mutable std::vector<double> tops_;  // the greatest of each block of likeness_
    std::vector<double> strengths_;  // of the present token's experts
};

}  // namespace outrider
