// MoEpic's cache configurator (MoEpic, section 3.4, Algorithm 1): gives each layer bytes and a cut of its experts, so
// that computation hides as much loading as possible.
#pragma once

#include "core/allocate/moepic_model.h"

namespace outrider {

struct MoepicConfiguration {
    std::vector<double> budget_bytes;  // [layer]: V_i, from Algorithm 1
    std::vector<double> top_share;     // [layer]: theta_i
    std::vector<int32_t> n_slot;       // [layer]: C_i, with the rest of the budget
    double stall_us = 0;               // of a token, predicted from the statistics
    int32_t n_step = 0;                // transfers of Algorithm 1
    Layout layout;
};

// `budget_bytes`: of tops and buffers for bottoms. It is exceeded only if it is too small for K tops of the smallest
// cut in every layer and a bottom of each kind. `granularity`: the share of the budget that one step moves (zeta), at
// least one expert. REQUIRES: statistics of the same numbers of layers and experts. Throws std::invalid_argument for
// times or a granularity that are negative, not finite, or all zero.
MoepicConfiguration moepic_configure(const MoepicStatistics & statistics, const Shape & shape,
                                     const MoepicTimes & times, uint64_t budget_bytes, double granularity = 0.01);

// Return the predicted stall of a token, in microseconds. REQUIRES: each layer of `layout` has a pool of its own for
// tops.
double moepic_stall_us(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                       const Layout & layout);

// Steps of Algorithm 1, each for one layer. `window_us`: the time for prefetching before the layer (T_wind).
// Judge `n_cached` tops (0 to n_expert) of `top_share`.
MoepicCut moepic_judge(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                       int32_t n_cached, double top_share, double window_us);
// Return the best cut and number of experts within `budget_bytes` (the sub-problem of section 3.4.2).
MoepicCut moepic_cut(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                     double budget_bytes, double window_us);

}  // namespace outrider
