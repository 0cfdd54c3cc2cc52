// MoEpic's cache configurator (MoEpic, section 3.4, Algorithm 1): how many bytes each layer gets,
// and where its experts are cut, so that the least loading is left uncovered by computation.
#pragma once

#include "core/allocate/moepic_model.h"

namespace outrider {

struct MoepicConfiguration {
    std::vector<double> budget_bytes;  // [layer]: V_i, what Algorithm 1 gave the layer
    std::vector<double> top_share;     // [layer]: theta_i
    std::vector<int32_t> n_slot;       // [layer]: C_i, and what was left of the budget in the end
    double stall_us = 0;               // of a token, as the statistics predict it
    int32_t n_step = 0;                // transfers of Algorithm 1
    Layout layout;
};

// `budget_bytes`: of tops and of the buffers for bottoms together. It is exceeded only where it does
// not hold K tops of the smallest cut in every layer and a bottom of each kind. `granularity`: what
// one step moves, as a share of the budget (zeta), but at least one expert.
// REQUIRES: statistics of the same numbers of layers and experts. Throws std::invalid_argument for
// times or a granularity that are negative, not finite, or all zero.
MoepicConfiguration moepic_configure(const MoepicStatistics & statistics, const Shape & shape,
                                     const MoepicTimes & times, uint64_t budget_bytes, double granularity = 0.01);

// Predicted stall of a token under `layout`, whose layers have pools of their own for their tops.
double moepic_stall_us(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                       const Layout & layout);

// Steps of the above, each for one layer and with the window that prefetching has before it (T_wind).
// What it does with so many tops of such a share; n_cached from 0 to n_expert.
MoepicCut moepic_judge(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                       int32_t n_cached, double top_share, double window_us);
// The best cut and number of experts within `budget_bytes`: the sub-problem of section 3.4.2.
MoepicCut moepic_cut(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                     double budget_bytes, double window_us);

}  // namespace outrider
