// The model's statistics for MoEpic's configurator (MoEpic, section 3.4.2), gathered while running: for each layer i
//   H_i(C)      share of the activated experts that hit a cache of C experts;
//   P_i(y)      how often the expert with the y-th highest predicted score is activated;
//   PH_i(y, C)  how often that expert is in a cache of C experts.
// The cache is that of the paper: the C experts of the highest priority (section 3.4.2: "ranks all N
// experts by their cache priorities"), by Eq. 4. A hit at C is therefore an expert whose rank by
// priority, before it is activated, is C at most, and one count per rank gives H for every C.
#pragma once

#include "core/predict/predictor.h"

namespace outrider {

class MoepicStatistics {
  public:
    // Experts of a forecast beyond the first `max_rank` are not counted.
    static constexpr int32_t max_rank = 32;

    MoepicStatistics(int32_t n_layer, int32_t n_expert);

    // Only passes of one token count: the configurator's formulas are those of one token's K experts. From larger
    // ones, only the priorities are learned.
    void routed(const Routing & routing);
    // The last forecast for a layer before it is routed counts.
    void forecast(const Forecast & forecast);

    int32_t n_layer() const { return n_layer_; }
    int32_t n_expert() const { return n_expert_; }
    int32_t n_rank() const { return n_rank_; }
    // Tokens since the start, counted at the first layer.
    int64_t n_token() const { return int64_t(state_.clock[0]); }

    // With C from 0 to n_expert, y from 0. All are 0 where nothing has been counted.
    double hit_rate(Layer layer, int32_t n_cached) const;                           // H
    double accuracy(Layer layer, int32_t rank) const;                               // P
    double predicted_hit_rate(Layer layer, int32_t rank, int32_t n_cached) const;   // PH

    // The layer's experts by descending priority.
    std::vector<Expert> ranked(Layer layer) const;

    // [layer][n_expert]: requests that c + 1 slots would have made hits and c would not.
    std::vector<float> reuse() const;

    // The whole state, to continue later.
    struct State {
        std::vector<uint32_t> used;      // [layer][n_expert]: activations, mu in Eq. 4
        std::vector<uint64_t> last;      // [layer][n_expert]: token of the last one, from 1; 0: never
        std::vector<uint64_t> clock;     // [layer]: tokens routed
        std::vector<uint64_t> n_judged;  // [layer]: of these, counted in what follows: q
        std::vector<uint32_t> found;     // [layer][n_expert]: activations by rank of priority
        std::vector<uint32_t> right;     // [layer][n_rank]: forecasts at that rank that came true
        std::vector<uint32_t> resident;  // [layer][n_rank][n_expert]: forecasts by rank of priority
    };
    const State & state() const { return state_; }
    // Throws std::invalid_argument for other sizes.
    void restore(State state);

  private:
    void learn(Layer layer, Expert expert);
    // Position, from 0, of an expert among all of its layer by descending priority.
    int32_t rank_of(Layer layer, Expert expert) const;

    int32_t n_layer_;
    int32_t n_expert_;
    int32_t n_rank_;
    State state_;
    std::vector<double> keys_;                    // [layer][n_expert]: they order as the priorities do
    std::vector<std::vector<Expert>> forecasts_;  // [layer], not yet judged
};

}  // namespace outrider
