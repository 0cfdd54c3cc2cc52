#include "core/allocate/moepic_configurator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/allocate/split.h"

namespace outrider {
namespace {

// VramAllocation of Algorithm 1, from `budget` on; returns the number of steps.
int32_t transfer(const MoepicModel & model, double step_bytes, std::vector<double> & budget) {
    static constexpr int32_t max_step = 10000;
    const auto n_layer = Layer(budget.size());
    int32_t n_step = 0;
    double sum_us = model.split(budget).sum_us;
    for (; n_step < max_step && n_layer > 1; n_step++) {
        std::vector<double> more = budget, less = budget;
        for (Layer l = 0; l < n_layer; l++) {
            more[size_t(l)] += step_bytes;
            less[size_t(l)] -= step_bytes;
        }
        const auto now_us = model.split(budget).stall_us;
        const auto more_us = model.split(more).stall_us;
        const auto less_us = model.split(less).stall_us;
        Layer to = 0;
        for (Layer l = 1; l < n_layer; l++) {
            to = now_us[size_t(l)] - more_us[size_t(l)] > now_us[size_t(to)] - more_us[size_t(to)] ? l : to;
        }
        Layer from = none;
        for (Layer l = 0; l < n_layer; l++) {
            if (l == to || less[size_t(l)] < model.least_bytes(l)) {
                continue;
            }
            if (from == none || less_us[size_t(l)] - now_us[size_t(l)] < less_us[size_t(from)] - now_us[size_t(from)]) {
                from = l;
            }
        }
        if (from == none) {
            break;
        }
        std::vector<double> next = budget;
        next[size_t(to)] += step_bytes;
        next[size_t(from)] -= step_bytes;
        const double next_us = model.split(next).sum_us;
        if (!(next_us < sum_us)) {
            break;
        }
        sum_us = next_us;
        budget = std::move(next);
    }
    return n_step;
}

// The bytes of all layers' tops, uniformly divided: the budget without the buffers, but at least the minimum.
std::vector<double> start(const MoepicModel & model, const Shape & shape, double budget_bytes) {
    const std::vector<int32_t> kinds = kinds_of(shape);
    std::vector<double> largest;  // [kind]: bytes of a bottom
    double least_bytes = 0, all_bytes = 0;
    for (Layer l = 0; l < shape.n_layer; l++) {
        largest.resize(std::max(largest.size(), size_t(kinds[l]) + 1), 0.0);
        const double bottom_bytes = model.expert_bytes(l) * (1 - model.least_share(l));
        largest[size_t(kinds[l])] = std::max(largest[size_t(kinds[l])], bottom_bytes);
        least_bytes += model.least_bytes(l);
        all_bytes += model.expert_bytes(l);
    }
    // U_b: the usual bottoms of each kind; fewer, down to one, if memory is short.
    const double one_bytes = std::accumulate(largest.begin(), largest.end(), 0.0);
    const double buffer_bytes = std::clamp(budget_bytes - least_bytes, one_bytes, one_bytes * usual_n_bottom(shape));
    const double rest_bytes = std::max(0.0, budget_bytes - buffer_bytes - least_bytes);
    std::vector<double> budget;
    for (Layer l = 0; l < shape.n_layer; l++) {
        budget.push_back(model.least_bytes(l) + rest_bytes * model.expert_bytes(l) / all_bytes);
    }
    return budget;
}

// VramAllocation with steps of `granularity` of the budget, and smaller ones.
int32_t transfer_all(const MoepicModel & model, double granularity, std::vector<double> & budget) {
    const double all = std::accumulate(budget.begin(), budget.end(), 0.0);
    // Smaller steps find more (Figure 9b), and a large one may exceed what any layer can give. So the search goes on
    // with half the step, down to one expert. Slots are whole and cuts few: less than an expert often changes nothing.
    double least_bytes = 0;
    for (Layer l = 0; l < Layer(budget.size()); l++) {
        least_bytes = std::max(least_bytes, model.expert_bytes(l));
    }
    int32_t n_step = 0;
    for (double step_bytes = granularity * all;; step_bytes /= 2) {
        n_step += transfer(model, std::max(step_bytes, least_bytes), budget);
        if (step_bytes <= least_bytes) {
            return n_step;
        }
    }
}

// With cuts of at least `least_share`, for which the buffers are made: the uniform start, or with a
// granularity above 0 what Algorithm 1 makes of it.
MoepicConfiguration configure(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                              uint64_t budget_bytes, double granularity, double least_share) {
    const MoepicModel model(statistics, shape, times, least_share);
    MoepicConfiguration result;
    result.budget_bytes = start(model, shape, double(budget_bytes));
    if (granularity > 0) {
        result.n_step = transfer_all(model, granularity, result.budget_bytes);
    }
    const auto outcome = model.split(result.budget_bytes);
    Split split{{}, {}, usual_n_bottom(shape)};
    for (const MoepicCut & cut : outcome.cuts) {
        split.n_top.push_back(cut.n_cached);
        split.top_share.push_back(cut.top_share);
    }
    split.n_bottom = fitting_n_bottom(shape, split, budget_bytes);
    // The rest of the budget goes where one more slot saves the most loading, or else evenly.
    const auto worth = [&](Layer l, int32_t n) {
        const double hits = model.hit_rate(l, n) - model.hit_rate(l, n - 1);
        return (hits + 1e-9 / n) * split.top_share[size_t(l)] / double(top_bytes(shape, l, split.top_share[size_t(l)]));
    };
    hand_out(shape, budget_bytes, worth, split);
    result.top_share = split.top_share;
    result.n_slot = split.n_top;
    result.layout = split_layout(shape, split);
    result.layout.validate(shape);
    result.stall_us = moepic_stall_us(statistics, shape, times, result.layout);
    return result;
}

}  // namespace

MoepicConfiguration moepic_configure(const MoepicStatistics & statistics, const Shape & shape,
                                     const MoepicTimes & times, uint64_t budget_bytes, double granularity) {
    if (!(granularity > 0 && granularity < 1)) {
        throw std::invalid_argument("The granularity is not between 0 and 1");
    }
    // All layers' bottoms pass through the same buffers, so the smallest cut of any layer decides their size. Algorithm
    // 1 does not see that. So several smallest cuts are tried, and the search goes on from the best start. Without cuts
    // there are no buffers. The first smallest cut is 0.5, where the method starts; 0, any cut, always fits.
    double best_share = 0, best_us = std::numeric_limits<double>::infinity();
    for (double least_share : {0.5, 0.0, 0.25, 0.75, 1.0}) {
        const MoepicConfiguration begun = configure(statistics, shape, times, budget_bytes, 0, least_share);
        const bool fits = least_share == 0 || begun.layout.bytes(shape) <= budget_bytes;
        if (fits && begun.stall_us < best_us) {
            best_share = least_share;
            best_us = begun.stall_us;
        }
    }
    return configure(statistics, shape, times, budget_bytes, granularity, best_share);
}

static void require_place(const MoepicStatistics & statistics, Layer layer, int32_t n_cached) {
    if (layer < 0 || layer >= statistics.n_layer() || n_cached < 0 || n_cached > statistics.n_expert()) {
        throw std::invalid_argument("There is no such layer, or it has no such number of experts");
    }
}

MoepicCut moepic_cut(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                     double budget_bytes, double window_us) {
    require_place(statistics, layer, 0);
    return MoepicModel(statistics, shape, times).choose(layer, budget_bytes, window_us);
}

double moepic_stall_us(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times,
                       const Layout & layout) {
    layout.validate(shape);
    const MoepicModel model(statistics, shape, times);
    const auto as_laid_out = [&](Layer l, double window_us) {
        const LayerLayout & layer = layout.layers[size_t(l)];
        const Pool pool = layer.pool[size_t(Part::top)];
        const int32_t n = pool == none ? 0 : std::min(layout.pools[size_t(pool)].n_slot, shape.n_expert);
        return model.judge(l, n, layer.top_share, window_us);
    };
    return model.walk(as_laid_out).sum_us;
}

MoepicCut moepic_judge(const MoepicStatistics & statistics, const Shape & shape, const MoepicTimes & times, Layer layer,
                       int32_t n_cached, double top_share, double window_us) {
    require_place(statistics, layer, n_cached);
    return MoepicModel(statistics, shape, times).judge(layer, n_cached, top_share, window_us);
}

}  // namespace outrider
