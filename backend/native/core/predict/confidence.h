// How far a predictor can be trusted: how many of the experts that it ranked first, second, ... were used, and how many
// of the absent ones, by the time since the layer used them last. An expert unused for long is hardly used now,
// whatever the forecast. A wrong prefetch costs the link as much as a right one.
#pragma once

#include <array>

#include "core/predict/predictor.h"

namespace outrider {

class Confidence {
  public:
    // Drop from forecasts the ranks whose precision is below `min_precision`, and absent experts of ages whose
    // precision is below a share of it; 0: none.
    Confidence(int32_t n_layer, int32_t n_expert, double min_precision);

    void set_min_precision(double min_precision) { min_precision_ = min_precision; }
    // Remember the forecast, to judge it later, and return what is worth fetching. `is_absent(expert)`: whether it
    // would have to be fetched.
    template <typename IsAbsent>
    Forecast worthwhile(const Forecast & forecast, IsAbsent && is_absent) {
        absent_.clear();
        for (Expert e : forecast.experts) {
            absent_.push_back(forecast.layer != none && is_absent(e));
        }
        return worthwhile(forecast);
    }
    // A layer was routed. `waited`: some copies for it had not begun. The rarer that is, the more time the link has to
    // spare, and the more often a copy may be wrong.
    void gate_passed(bool waited) { congestion_ += age_weight * ((waited ? 1.0 : 0.0) - congestion_); }
    // The layer's needs: needed[e] is not 0.
    void judge(Layer layer, std::span<const uint8_t> needed);

    // Moving average over the forecasts judged so far; a rank starts at 1.
    double precision(size_t rank) const { return rank < precision_.size() ? precision_[rank] : 1.0; }
    // The same for absent experts, by the number of routings of their layer since their last use.
    double precision_of_absent(uint32_t n_ago) const { return of_age_[age_class(n_ago)]; }

  private:
    static constexpr double weight = 1.0 / 256;  // of one forecast
    static constexpr double age_weight = 1.0 / 64;
    // Absent experts may be wrong more often: one that arrives in time saves a stall.
    static constexpr double absent_share = 0.6;
    // But a wrong copy always takes time from the processor and its memory (docs/log/bench.md).
    static constexpr double least_share = 0.75;
    static constexpr double full_at = 4;  // times the congestion; a quarter of the gates is often
    static constexpr size_t n_age_class = 8;

    struct Told {
        Expert expert;
        int32_t age_class;  // or `none`: resident
    };

    // 1, 2 to 3, 4 to 7, ... ago; the last: longer, or never.
    static size_t age_class(uint32_t n_ago);
    Forecast worthwhile(const Forecast & forecast);
    uint32_t n_ago(Layer layer, Expert expert) const;

    int32_t n_expert_;
    double min_precision_;
    double congestion_ = 0;  // share of the gates that found copies waiting
    std::vector<double> precision_;  // [rank]
    std::array<double, n_age_class> of_age_;  // [class]
    std::vector<std::vector<Told>> forecasts_;  // [layer], not yet judged
    std::vector<uint32_t> n_routed_;  // [layer]
    std::vector<uint32_t> last_used_;  // [layer * n_expert + expert]: n_routed_ then; 0: never
    std::vector<uint8_t> absent_;  // [rank], of the forecast in progress
};

}  // namespace outrider
