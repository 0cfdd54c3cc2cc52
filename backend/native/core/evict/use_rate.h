// How often each expert is used, per pass, of late: the sum of two decaying averages, a fast and a slow
// one, of what each pass had for it. Worth per routing: O(experts used).
#pragma once

#include "../types.h"
#include "per_expert.h"

namespace outrider {

class UseRate {
  public:
    // `fast` and `slow`: what a use counts after each further pass; `slow_share`: of the sum.
    UseRate(const Shape & shape, double fast, double slow, double slow_share);

    // A pass through the layer: say it before what it used.
    void pass(Layer layer);
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
    // What a stored sum is worth today. Sums are not decayed at each pass; later uses are stored as
    // more instead.
    struct Scale {
        double fast;
        double slow;
    };
    Scale decay_;
    Scale fresh_;                // what a use of the present pass is worth
    std::vector<Scale> scales_;  // [layer]
    PerExpert<Sums> sums_;
};

// How much a layer's pass had for each expert that it used: the fourth root of the router's weights, summed
// over tokens, so that a token gives k in all; of tokens, where the weights are not known. So the many
// tokens of a prompt count for little more than one of an answer, which resembles the next ones more,
// and a strong choice for more than a weak one.
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

    // Weights of one token, scaled to a sum of k; all 1 where they are unknown or no numbers.
    static void even_out(std::span<const float> weights, std::span<double> strengths);

  private:
    void sum_up(const Routing & routing);
    static double fourth_root(double x);

    std::vector<double> sums_;       // [n_expert], 0 between calls
    std::vector<double> strengths_;  // [n_expert_used]
};

}  // namespace outrider
