// How far a predictor can be trusted: of the experts that it ranked first, second, ... how many
// were used; and of those that are not resident, which are the ones to fetch, by how long ago the layer
// used them last: what it has not used for long it will hardly use now, whoever says so. Prefetching an
// expert that is not used costs the link as much as one that is.
#pragma once

#include <array>

#include "predictor.h"

namespace outrider {

class Confidence {
  public:
    // Ranks whose precision is below `min_precision` are dropped from forecasts, and absent experts of
    // ages whose precision is below a share of it; 0: none.
    Confidence(int32_t n_layer, int32_t n_expert, double min_precision);

    void set_min_precision(double min_precision) { min_precision_ = min_precision; }
    // Remembers the forecast, to judge it later, and returns what of it is worth fetching.
    // `is_absent(expert)`: it would have to be fetched.
    template <typename IsAbsent>
    Forecast worthwhile(const Forecast & forecast, IsAbsent && is_absent) {
        absent_.clear();
        for (Expert e : forecast.experts) {
            absent_.push_back(forecast.layer != none && is_absent(e));
        }
        return worthwhile(forecast);
    }
    // A layer was routed; `waited`: what was fetched for it had not all been begun. Where that never
    // happens the link has time to spare, and absent experts are fetched whatever their precision.
    void gate_passed(bool waited) { congestion_ += age_weight * ((waited ? 1.0 : 0.0) - congestion_); }
    // What the layer really needed; `needed[e]` is not 0 for an expert that was.
    void judge(Layer layer, std::span<const uint8_t> needed);

    // Of the forecasts judged so far, as a moving average; a rank starts trusted.
    double precision(size_t rank) const { return rank < precision_.size() ? precision_[rank] : 1.0; }
    // The same of absent experts whose last use was so many routings of their layer ago.
    double precision_of_absent(uint32_t n_ago) const { return of_age_[age_class(n_ago)]; }

  private:
    static constexpr double weight = 1.0 / 256;  // of one judgement
    static constexpr double age_weight = 1.0 / 64;
    // An absent one may be wrong more often, as one that comes in time spares a stall.
    static constexpr double absent_share = 0.6;
    static constexpr double full_at = 4;  // times the congestion: a quarter of the gates is often
    static constexpr size_t n_age_class = 8;

    struct Told {
        Expert expert;
        int32_t age_class;  // or `none` where it was resident
    };

    // 1, 2 to 3, 4 to 7, ... ago; the last: longer, or never.
    static size_t age_class(uint32_t n_ago);
    Forecast worthwhile(const Forecast & forecast);
    uint32_t n_ago(Layer layer, Expert expert) const;

    int32_t n_expert_;
    double min_precision_;
    double congestion_ = 0;                     // share of the gates that found copies waiting
    std::vector<double> precision_;             // [rank]
    std::array<double, n_age_class> of_age_;    // [class]
    std::vector<std::vector<Told>> forecasts_;  // [layer], not yet judged
    std::vector<uint32_t> n_routed_;            // [layer]
    std::vector<uint32_t> last_used_;           // [layer * n_expert + expert]: n_routed_ then; 0: never
    std::vector<uint8_t> absent_;               // [rank], of the forecast in progress
};

}  // namespace outrider
