#include "moepic_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace outrider {
namespace {

void require_sane(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times) {
    for (double us : {times.expert_us, times.layer_us, times.head_us, times.chunk_us, times.byte_us}) {
        if (!(us >= 0) || !std::isfinite(us)) {
            throw std::invalid_argument("A measured time is negative or not a number");
        }
    }
    if (statistics.n_layer() != shape.n_layer || statistics.n_expert() != shape.n_expert) {
        throw std::invalid_argument("The statistics are of a model of another shape");
    }
}

}  // namespace

MoepicModel::MoepicModel(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times)
    : shape_(shape), times_(times), n_expert_(shape.n_expert), n_rank_(statistics.n_rank()) {
    require_sane(statistics, shape, times);
    for (Layer l = 0; l < shape.n_layer; l++) {
        load_us_.push_back(double(shape.chunk_bytes[l].size()) * times.chunk_us + expert_bytes(l) * times.byte_us);
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
        std::vector<double> shares;
        for (int32_t i = 1; i <= cuts(l); i++) {
            shares.push_back(double(i) / cuts(l));
        }
        std::stable_sort(shares.begin(), shares.end(),
                         [](double a, double b) { return std::abs(a - 0.5) < std::abs(b - 0.5); });
        cuts_of_.push_back(std::move(shares));
    }
}

double MoepicModel::ready(Layer layer, int32_t n_cached, double top_share, double window_us, double load_us) const {
    const double * right = right_.data() + size_t(layer) * size_t(n_rank_);
    const double * resident =
        resident_.data() + (size_t(layer) * size_t(n_expert_ + 1) + size_t(n_cached)) * size_t(n_rank_);
    double ready = shape_.n_expert_used * hit_rate(layer, n_cached) * top_share;
    for (int32_t y = 0; y < n_rank_ && window_us > 0; y++) {
        const double missing = 1 - resident[y] * top_share;
        const double copy_us = missing * load_us;
        // The last one in the window counts for as much of it as is copied: chunks that have arrived
        // stay. (Section 3.4.2 makes the number of experts continuous, but for this one.)
        const double done = copy_us > window_us ? window_us / copy_us : 1.0;
        ready += done * missing * right[y];
        window_us -= copy_us;
    }
    return std::min(ready, double(shape_.n_expert_used));
}

MoepicCut MoepicModel::choose(Layer layer, double budget_bytes, double window_us) const {
    const std::vector<double> & shares = cuts_of_[size_t(layer)];
    // Of equals the one that relies the least on forecasts: what is cached is there. Then the one
    // nearest to 0.5, from where Algorithm 1 starts, with the most experts.
    MoepicCut best{shares.back(), shape_.n_expert_used, -1};
    double best_cached = 0;
    for (double share : shares) {
        const double fitting = std::max(budget_bytes, least_bytes(layer)) / (share * expert_bytes(layer)) * (1 + 1e-12);
        for (auto n = int32_t(std::min(double(n_expert_), fitting)); n >= shape_.n_expert_used; n--) {
            const double ready = this->ready(layer, n, share, window_us, load_us(layer));
            const double cached = hit_rate(layer, n) * share;
            if (ready > best.ready || (ready == best.ready && cached > best_cached)) {
                best = {share, n, ready};
                best_cached = cached;
            }
        }
    }
    return best;
}

MoepicModel::Outcome MoepicModel::walk(const Choose & choose) const {
    const double n_used = shape_.n_expert_used;
    Outcome outcome;
    double window_us = times_.head_us + times_.layer_us;
    for (Layer l = 0; l < shape_.n_layer; l++) {
        const MoepicCut choice = choose(l, window_us);
        const double hide_us = choice.ready * times_.expert_us;           // Eq. 5
        const double miss_us = (n_used - choice.ready) * load_us(l);
        const double stall_us = std::max(0.0, miss_us - hide_us);         // Eq. 6
        window_us = n_used * times_.expert_us - std::min(hide_us, miss_us) + times_.layer_us;  // Eq. 7
        outcome.cuts.push_back(choice);
        outcome.stall_us.push_back(stall_us);
        outcome.sum_us += stall_us;
    }
    return outcome;
}

}  // namespace outrider
