// How often each expert was used of late, per pass: the sum of a fast and a slow decaying average of its share in each
// pass. Cost per routing: O(experts used).
#pragma once

#include "core/evict/per_expert.h"
#include "core/types.h"

namespace outrider {

class UseRate {
  public:
    // `fast`, `slow`: the factor on a use for each further pass; `slow_share`: of the sum.
    UseRate(const Shape & shape, double fast, double slow, double slow_share);

    // The layer begins another pass. Comes before its uses.
    void pass(Layer layer);
    // The layer's next pass is known before the layer is reached: pass() counts for it now.
    void pass_ahead(Layer layer);
    void add(Layer layer, Expert expert, double amount);
    double of(Layer layer, Expert expert) const {
        const Scale & s = scales_[size_t(layer)];
        const Sums & sums = sums_.at(layer, expert);
        return sums.fast * s.fast + sums.slow * s.slow;
    }

  private:
    struct Sums {
        double fast = 0;
        double slow = 0;
    };
    // The present worth of a stored sum. Instead of decaying sums at each pass, later uses are stored as more.
    struct Scale {
        double fast;
        double slow;
    };
    void decay(Layer layer);

    Scale decay_;
    Scale fresh_;                 // of a use in the present pass
    std::vector<Scale> scales_;   // [layer]
    std::vector<uint8_t> ahead_;  // [layer]: its next pass has been counted
    PerExpert<Sums> sums_;
};

// The share of each used expert in a layer's pass: the fourth root of the router's weights, summed over tokens and
// scaled to k per token; the number of tokens where weights are unknown. So the many tokens of a prompt count little
// more than one of an answer, which resembles the next ones more, and a strong choice counts more than a weak one.
class Amounts {
  public:
    explicit Amounts(const Shape & shape) : sums_(size_t(shape.n_expert), 0) {}

    // Calls use(expert, amount) for each demand.
    template <typename Use>
    void each(const Routing & routing, std::span<const Demand> demands, Use && use) {
        sum_up(routing);
        for (const Demand & d : demands) {
            use(d.expert, fourth_root(sums_[size_t(d.expert)]));
            sums_[size_t(d.expert)] = 0;
        }
    }

    // Weights of one token, scaled to a sum of k; all 1 if they are unknown or not finite.
    static void even_out(std::span<const float> weights, std::span<double> strengths);

  private:
    void sum_up(const Routing & routing);
    static double fourth_root(double x);

    std::vector<double> sums_;       // [n_expert], 0 between calls
    std::vector<double> strengths_;  // [n_expert_used]
};

}  // namespace outrider
