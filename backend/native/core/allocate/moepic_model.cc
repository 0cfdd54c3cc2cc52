#include "core/allocate/moepic_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <tuple>

namespace outrider {
namespace {

void require_sane(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times) {
    for (double us : {times.expert_us, times.layer_us, times.head_us, times.chunk_us, times.byte_us, times.cut_us}) {
        if (!(us >= 0) || !std::isfinite(us)) {
            throw std::invalid_argument("A measured time is negative or not a number");
        }
    }
    if (statistics.n_layer() != shape.n_layer || statistics.n_expert() != shape.n_expert) {
        throw std::invalid_argument("The statistics are of a model of another shape");
    }
}

// Cuts that are tried, about: few are fast, and neighbouring thetas are much alike (Figure 4b).
constexpr int32_t max_cut = 8;

// E[max(0, X)] of a normal X.
double expected_excess(double mean, double variance) {
    if (!(variance > 0)) {
        return std::max(0.0, mean);
    }
    const double deviation = std::sqrt(variance);
    const double z = mean / deviation;
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    return std::max(0.0, mean * std::erfc(-z / std::numbers::sqrt2) / 2 + deviation * density);
}

}  // namespace

MoepicModel::MoepicModel(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                         double least_share)
    : shape_(shape), times_(times), n_expert_(shape.n_expert), n_rank_(statistics.n_rank()) {
    require_sane(statistics, shape, times);
    for (Layer l = 0; l < shape.n_layer; l++) {
        chunks_us_.push_back(double(shape.chunk_bytes[l].size()) * times.chunk_us);
        bytes_us_.push_back(expert_bytes(l) * times.byte_us);
        for (int32_t c = 0; c <= n_expert_; c++) {
            hits_.push_back(statistics.hit_rate(l, c));
        }
        for (int32_t y = 0; y < n_rank_; y++) {
            right_.push_back(statistics.accuracy(l, y));
        }
        for (int32_t c = 0; c <= n_expert_; c++) {
            for (int32_t y = 0; y < n_rank_; y++) {
                resident_.push_back(statistics.predicted_hit_rate(l, y, c));
            }
        }
        const int32_t n_cut = shape.cuts(l), step = (n_cut + max_cut - 1) / max_cut;
        std::vector<double> shares;
        for (int32_t i = 1; i <= n_cut; i++) {
            const bool usual = (i == 1 || i % step == 0) && double(i) / n_cut >= least_share;
            if (usual || i == n_cut) {
                shares.push_back(double(i) / n_cut);
            }
        }
        least_share_.push_back(shares.front());
        std::stable_sort(shares.begin(), shares.end(),
                         [](double a, double b) { return std::abs(a - 0.5) < std::abs(b - 0.5); });
        cuts_of_.push_back(std::move(shares));
    }
}

MoepicCut MoepicModel::judge(Layer layer, int32_t n_cached, double top_share, double window_us) const {
    const double * right = right_.data() + size_t(layer) * size_t(n_rank_);
    const double * resident =
        resident_.data() + (size_t(layer) * size_t(n_expert_ + 1) + size_t(n_cached)) * size_t(n_rank_);
    // Two parts are twice as many copies. `top` is the share of the loading that a resident top saves:
    // theta, where copies cost nothing but their bytes.
    const bool is_cut = top_share > 0 && top_share < 1;
    const double chunks_us = chunks_us_[size_t(layer)], bytes_us = bytes_us_[size_t(layer)];
    const double load_us = (is_cut ? 2 : 1) * chunks_us + bytes_us;  // T_load^exp
    const double top = is_cut && load_us > 0 ? (chunks_us + top_share * bytes_us) / load_us : top_share;
    const double n_used = shape_.used(layer);
    double ready = n_used * hit_rate(layer, n_cached) * top;
    double n_whole = 0;  // of the activated experts, those that are loaded as a whole: alpha_i
    for (int32_t y = 0; y < n_rank_ && window_us > 0; y++) {
        const double missing = 1 - resident[y] * top;
        const double copy_us = missing * load_us;  // Eq. 9
        // The last one in the window counts for as much of it as is copied: chunks that have arrived
        // stay. (Section 3.4.2 makes the number of experts continuous, but for this one.)
        const double done = copy_us > window_us ? window_us / copy_us : 1.0;
        ready += done * missing * right[y];  // Eq. 10
        n_whole += done * right[y];
        window_us -= copy_us;
    }
    ready = std::min(ready, n_used);
    const double hide_us = ready * times_.expert_us;     // Eq. 5
    const double miss_us = (n_used - ready) * load_us;
    // Eq. 6 is not linear: a token that misses two experts stalls although one that misses one on
    // average would not, and cutting is what evens that out (Figure 4b has its best theta at 0.4, and
    // with Eq. 6 of the means it would be 1 wherever H is concave). So its expectation is taken, with
    // the K experts as independent: each is whole, in memory by its top, or missing.
    const double mean = ready / n_used;
    const double whole = std::min(n_whole / n_used, mean);
    const double spread = std::max(0.0, whole + (mean - whole) * top - mean * mean);
    const double each_us = load_us + times_.expert_us;
    const double excess_us = expected_excess(miss_us - hide_us, n_used * spread * each_us * each_us);
    const double stall_us = std::min(excess_us, miss_us);
    // min(hide, miss) = miss - max(0, miss - hide)
    return {top_share, n_cached, ready, stall_us + (is_cut ? times_.cut_us : 0), miss_us - stall_us};
}

MoepicCut MoepicModel::choose(Layer layer, double budget_bytes, double window_us) const {
    // Among equals the one with the most ready, then the one that relies least on forecasts, since cached experts are
    // certain. Then the one nearest to 0.5, where Algorithm 1 starts, with most experts.
    const auto rank = [&](const MoepicCut & cut) {
        return std::tuple(cut.stall_us, -cut.ready, -hit_rate(layer, cut.n_cached) * cut.top_share);
    };
    std::optional<MoepicCut> best;
    for (double share : cuts_of_[size_t(layer)]) {
        const double fitting = std::max(budget_bytes, least_bytes(layer)) / (share * expert_bytes(layer)) * (1 + 1e-12);
        for (auto n = int32_t(std::min(double(n_expert_), fitting)); n >= shape_.n_expert_used; n--) {
            const MoepicCut cut = judge(layer, n, share, window_us);
            if (!best || rank(cut) < rank(*best)) {
                best = cut;
            }
        }
    }
    return *best;  // the smallest cut always fits
}

MoepicModel::Outcome MoepicModel::walk(const Choose & choose) const {
    Outcome outcome;
    double window_us = times_.head_us + times_.layer_us;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        const MoepicCut cut = choose(l, window_us);
        window_us = std::max(0.0, shape_.used(l) * times_.expert_us - cut.hidden_us) + times_.layer_us;  // Eq. 7
        outcome.cuts.push_back(cut);
        outcome.stall_us.push_back(cut.stall_us);
        outcome.sum_us += cut.stall_us;
    }
    return outcome;
}

}  // namespace outrider
