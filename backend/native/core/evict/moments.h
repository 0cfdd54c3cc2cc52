// Past tokens by what they were routed to, and which of them resemble the present one.
#pragma once

#include <vector>

#include "../types.h"

namespace outrider {

// A past token that resembles the present one.
struct Match {
    int64_t token;
    double share;  // of all matches: they sum up to 1
};

class Moments {
  public:
    Moments(const Shape & shape, int32_t window);

    void pass_began();
    // Remembers the layer's tokens, and compares the last of them with those before.
    void routed(const Routing & routing);
    // The next pass has nothing to do with this one.
    void forget_likeness();

    // Those that resemble the present token most, by its layers so far: exp(sharpness * likeness).
    void match(double sharpness, std::vector<Match> & matches) const;
    // The experts that the token used in the layer, or nothing where that is not known.
    std::span<const Expert> experts(Layer layer, int64_t token) const;
    // The last token of the pass; while nothing of the pass was routed, of the pass before.
    int64_t present() const { return first_ + n_token_ - 1; }

  private:
    struct Use {
        int64_t token;
        double strength;
    };
    // Uses of an expert, the oldest first; those before `begin` are out of the window.
    struct Uses {
        std::vector<Use> all;
        size_t begin = 0;
    };
    void remember(Layer layer, int64_t token, std::span<const Expert> experts, std::span<const float> weights);
    void compare(Layer layer, std::span<const Expert> experts);
    Uses & uses(Layer layer, Expert expert) { return uses_[size_t(layer) * n_expert_ + size_t(expert)]; }

    size_t n_expert_;
    size_t n_used_;
    int64_t window_;
    int64_t first_ = 0;        // the first token of the pass
    int64_t n_token_ = 0;      // of the pass, as its first layer had them; 0: not known yet
    std::vector<Uses> uses_;   // [layer * n_expert + expert]
    std::vector<int64_t> token_of_;  // [layer * window + token % window]
    std::vector<Expert> experts_;    // [layer * window + token % window][n_expert_used]
    std::vector<double> likeness_;   // [age]: of the token that is `age` tokens before the present one
    mutable std::vector<double> tops_;  // the greatest of each block of likeness_
    std::vector<double> strengths_;  // [n_expert_used], of the present token
};

}  // namespace outrider
