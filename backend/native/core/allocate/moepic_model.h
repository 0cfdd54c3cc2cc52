// Predicts from MoEpic's statistics how many of a token's experts are resident when needed, and how long computation
// waits (MoEpic, section 3.4, Eqs. 5 to 11).
#pragma once

#include <functional>

#include "core/allocate/moepic_statistics.h"
#include "core/layout.h"

namespace outrider {

// As profiled on the machine, for one token.
struct MoepicTimes {
    double expert_us = 0;  // computing one expert: T_comp^exp
    double layer_us = 0;   // the rest of a layer: T_comp^att
    double head_us = 0;    // between the last layer and the first one of the next token: T_comp^head
    double chunk_us = 0;   // copying a chunk, without its bytes; T_load^exp is the sum over the chunks
    double byte_us = 0;    // copying a byte
    double cut_us = 0;     // extra time of a layer whose experts are computed in two parts
};

// How one layer is cut, how many tops it keeps, how many of a token's K experts are then in memory when
// they are needed (m_i of Eq. 11); how long computation is expected to wait for the others, with
// MoepicTimes::cut_us where there are two parts; and how much of their loading computation hides.
struct MoepicCut {
    double top_share;
    int32_t n_cached;
    double ready;
    double stall_us;
    double hidden_us;
};

// The shape must outlive it.
class MoepicModel {
  public:
    // Considers no cuts below `least_share`. Throws std::invalid_argument if a time is negative or not finite, or the
    // shape is another.
    MoepicModel(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                double least_share = 0);

    // The behaviour of a layer with these tops; `window_us`: the time of its prefetches (T_wind).
    MoepicCut judge(Layer layer, int32_t n_cached, double top_share, double window_us) const;
    // The cut and the number of experts within `budget_bytes` that stall the least: the sub-problem of
    // section 3.4.2.
    MoepicCut choose(Layer layer, double budget_bytes, double window_us) const;

    struct Outcome {
        std::vector<MoepicCut> cuts;  // [layer]
        std::vector<double> stall_us;  // [layer]: T^i
        double sum_us = 0;
    };
    // ExpertSplit of Algorithm 1, where choose(layer, window) makes the choices.
    using Choose = std::function<MoepicCut(Layer layer, double window_us)>;
    Outcome walk(const Choose & choose) const;
    Outcome split(const std::vector<double> & budget_bytes) const {
        return walk([&](Layer l, double window_us) { return choose(l, budget_bytes[size_t(l)], window_us); });
    }

    double hit_rate(Layer layer, int32_t n) const { return hits_[size_t(layer) * size_t(n_expert_ + 1) + size_t(n)]; }
    double expert_bytes(Layer layer) const { return double(shape_.expert_bytes(layer)); }
    // The smallest top that is considered.
    double least_share(Layer layer) const { return least_share_[size_t(layer)]; }
    // The least memory of a layer: K of the smallest tops.
    double least_bytes(Layer layer) const { return shape_.n_expert_used * expert_bytes(layer) * least_share(layer); }

  private:
    const Shape & shape_;
    MoepicTimes times_;
    int32_t n_expert_;
    int32_t n_rank_;
    std::vector<double> chunks_us_;  // [layer]: copying an expert, without its bytes
    std::vector<double> bytes_us_;  // [layer]: its bytes
    std::vector<double> least_share_;  // [layer]
    std::vector<double> hits_;  // [layer][C]: H
    std::vector<double> right_;  // [layer][y]: P
    std::vector<double> resident_;  // [layer][C][y]: PH
    std::vector<std::vector<double>> cuts_of_;  // [layer]: thetas, nearest to 0.5 first
};

}  // namespace outrider
