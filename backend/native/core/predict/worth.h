// The worth of a read ahead of need. The unit is the stall that a right one avoids.
//
//     gain = p - victim - copy - (1 - p) * congestion / 2
//
// p: the probability that the layer uses the expert when it is routed next. victim: the probability that the displaced
// expert is needed then. copy: what computing loses to a copy beside it. congestion: the probability that the link has
// no time to spare. A wrong read is then under way when the layer's needs come, and on average half of it is left. A
// candidate is read while its gain is positive, the greatest first. All four are estimated while the method runs.
//
// p is counted for classes of candidates: by the rank in the forecast, or none for an expert that nobody forecast; by
// how many absent experts of the layer are more worth keeping (Eviction::keep); by the distance in layers. A class that
// was seen rarely resembles the others of its rank, and of its worth of keeping.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/types.h"

namespace outrider {

class Worth {
  public:
    // An absent expert that a layer may need.
    struct Candidate {
        int32_t rank = none;  // in the forecast, or `none`
        size_t n_before = 0;  // absent experts of the layer that are more worth keeping
        int32_t n_ahead = 1;  // layers from the present one
    };

    explicit Worth(int32_t n_layer) : told_(size_t(n_layer)), classes_(n_class()), ranks_(n_rank * n_distance) {}

    // The time that computing loses to a copy beside it, as a share of the stall that a right one avoids.
    void set_copy_cost(double cost) { copy_cost_ = cost; }
    // The share of the experts that gave way to reads and were needed by their layer's next token.
    void set_victim(double share) { victim_ = share; }
    // Return the candidate's probability of use, and judge it when the layer is routed.
    double expect(Layer layer, Expert expert, const Candidate & candidate);
    double gain(double p) const;
    // How much less a later layer's read is worth now: reads for which the link has time later can wait.
    double urgency(int32_t n_ahead) const;

    // A layer was routed. `waited`: copies of forecasts had not begun.
    void gate_passed(bool waited);
    // The layer's needs: needed[e] is not 0.
    void judge(Layer layer, std::span<const uint8_t> needed);
    void forget(Layer layer) { told_[size_t(layer)].clear(); }

    double probability(const Candidate & candidate) const;

  private:
    static constexpr size_t n_rank = 16, n_keep = 8, n_distance = 3;

    // Decayed counts.
    struct Count {
        double used = 0;
        double all = 0;

        void add(bool was_used);
        // With `n` more observations, of which a share was used.
        double share(double n, double otherwise) const { return (used + n * otherwise) / (all + n); }
    };
    struct Told {
        Expert expert;
        size_t at;  // class
    };

    static size_t n_class() { return n_rank * n_keep * n_distance; }
    static size_t rank_class(int32_t rank);
    static size_t class_of(const Candidate & candidate);
    double probability(size_t at) const;

    double copy_cost_ = 0;
    double congestion_ = 0;  // share of the gates that found copies waiting
    double victim_ = 0;
    std::vector<std::vector<Told>> told_;  // [layer]
    std::vector<Count> classes_;  // [rank][distance][keep]
    std::vector<Count> ranks_;  // [rank][distance]
    struct Keeps {  // of all ranks
        std::array<Count, n_keep> classes;
        Count all;
    };
    std::array<std::array<Keeps, n_distance>, 2> keeps_;  // [forecast or not][distance]
};

}  // namespace outrider
