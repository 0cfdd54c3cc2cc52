// MoEpic's cache configurator (MoEpic, section 3.4, Algorithm 1): how many bytes each layer gets,
// and where its experts are cut, so that the least loading is left uncovered by computation.
#pragma once

#include "moepic_model.h"

namespace outrider {

struct MoepicConfiguration {
    std::vector<double> budget_bytes;  // [layer]: V_i, what Algorithm 1 gave the layer
    std::vector<double> top_share;     // [layer]: theta_i
    std::vector<int32_t> n_slot;       // [layer]: C_i, and what was left of the budget in the end
    double stall_us = 0;               // of a token, as the statistics predict it: the sum of Eq. 6
    int32_t n_step = 0;                // transfers of Algorithm 1
    Layout layout;
};

// `budget_bytes`: of tops and of the buffers for bottoms together. It is exceeded only where it does
// not hold K tops of the smallest cut in every layer and a bottom of each kind. `granularity`: what
// one step moves, as a share of the budget (zeta).
// REQUIRES: statistics of the same numbers of layers and experts. Throws std::invalid_argument for
// times or a granularity that are negative, not finite, or all zero.
MoepicConfiguration moepic_configure(const MoepicStatistics & statistics, const Shape & shape,
                                     const MoepicTimes & times, uint64_t budget_bytes, double granularity = 0.01);

// Predicted stall of a token under `layout`, whose layers have pools of their own for their tops.
double moepic_stall_us(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                       const Layout & layout);

// m_i of Eq. 11: how many of its K experts a layer has in memory when its router has chosen.
double moepic_ready(const MoepicStatistics & statistics, int32_t n_expert_used, Layer layer, int32_t n_cached,
                    double top_share, double window_us, double load_us);

}  // namespace outrider
