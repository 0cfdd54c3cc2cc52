// What MoEpic's statistics predict: how many of a token's experts are in memory when they are needed,
// and how long computation then waits (MoEpic, section 3.4, Eqs. 5 to 11).
#pragma once

#include <functional>

#include "../layout.h"
#include "moepic_statistics.h"

namespace outrider {

// As profiled on the machine, for one token.
struct MoepicTimes {
    double expert_us = 0;  // computing one expert: T_comp^exp
    double layer_us = 0;   // the rest of a layer: T_comp^att
    double head_us = 0;    // between the last layer and the first one of the next token: T_comp^head
    double chunk_us = 0;   // copying a chunk, but for its bytes; T_load^exp is the sum over the chunks
    double byte_us = 0;    // copying a byte
};

// How one layer is cut, how many tops it keeps, and how many of a token's K experts (m_i) are then in
// memory when they are needed.
struct MoepicCut {
    double top_share;
    int32_t n_cached;
    double ready;
};

// The shape must outlive it.
class MoepicModel {
  public:
    // Throws std::invalid_argument where a time is negative or not finite, or the shape is another.
    MoepicModel(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times);

    // Eq. 9 to 11.
    double ready(Layer layer, int32_t n_cached, double top_share, double window_us, double load_us) const;
    // The cut and the number of experts that fit into `budget_bytes` and leave the most ready.
    MoepicCut choose(Layer layer, double budget_bytes, double window_us) const;

    struct Outcome {
        std::vector<MoepicCut> cuts;   // [layer]
        std::vector<double> stall_us;  // [layer]
        double sum_us = 0;
    };
    // ExpertSplit of Algorithm 1, where choose(layer, window) makes the choices.
    using Choose = std::function<MoepicCut(Layer layer, double window_us)>;
    Outcome walk(const Choose & choose) const;
    Outcome split(const std::vector<double> & budget_bytes) const {
        return walk([&](Layer l, double window_us) { return choose(l, budget_bytes[size_t(l)], window_us); });
    }

    double load_us(Layer layer) const { return load_us_[size_t(layer)]; }
    double hit_rate(Layer layer, int32_t n) const { return hits_[size_t(layer) * size_t(n_expert_ + 1) + size_t(n)]; }
    // What a layer needs at least: K tops of its smallest cut.
    double least_bytes(Layer layer) const { return double(shape_.n_expert_used) * expert_bytes(layer) / cuts(layer); }
    double expert_bytes(Layer layer) const { return double(shape_.expert_bytes(layer)); }

  private:
    int32_t cuts(Layer layer) const { return shape_.cuts(layer); }

    const Shape & shape_;
    MoepicTimes times_;
    int32_t n_expert_;
    int32_t n_rank_;
    std::vector<double> load_us_;                // [layer]: T_load^exp
    std::vector<double> hits_;                   // [layer][C]: H
    std::vector<double> right_;                  // [layer][y]: P
    std::vector<double> resident_;               // [layer][C][y]: PH
    std::vector<std::vector<double>> cuts_of_;   // [layer]: thetas, nearest to 0.5 first
};

}  // namespace outrider
