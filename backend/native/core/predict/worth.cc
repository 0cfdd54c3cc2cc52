#include "core/predict/worth.h"

#include <algorithm>
#include <bit>

namespace outrider {
namespace {

constexpr double memory = 255.0 / 256;  // of a count, for each further observation
constexpr double n_prior = 8;           // observations of a rank that a class begins with
// A rank begins with this many observations, of which this share was used.
constexpr double n_first = 4, forecast_first = 0.5, other_first = 0.05;

size_t log2_of(size_t n) { return size_t(std::bit_width(n)); }

}  // namespace

void Worth::Count::add(bool was_used) {
    used = memory * used + (was_used ? 1 : 0);
    all = memory * all + 1;
}

// 0: not forecast; 1 to 8: the first ones; then 8 to 15, 16 to 31, ...
size_t Worth::rank_class(int32_t rank) {
    const auto r = size_t(rank);
    return rank == none ? 0 : r < 8 ? r + 1 : std::min(n_rank - 1, log2_of(r) + 5);
}

size_t Worth::class_of(const Candidate & c) {
    const size_t distance = std::min(size_t(std::max(c.n_ahead, 1)), n_distance) - 1;
    return (rank_class(c.rank) * n_distance + distance) * n_keep + std::min(log2_of(c.n_before), n_keep - 1);
}

// A class that was seen rarely has the odds of its rank, times what its worth of keeping changes them for all ranks.
double Worth::probability(size_t at) const {
    const auto odds = [](double p) { return p / (1 - p); };
    const bool is_named = at / (n_keep * n_distance) != 0;
    const double first = is_named ? forecast_first : other_first;
    const Keeps & keeps = keeps_[is_named][at / n_keep % n_distance];
    const double all = keeps.all.share(n_first, first);
    const double of_keep = keeps.classes[at % n_keep].share(n_prior, all);
    const double expected = odds(ranks_[at / n_keep].share(n_first, first)) * (odds(of_keep) / odds(all));
    return classes_[at].share(n_prior, expected / (1 + expected));
}

double Worth::probability(const Candidate & candidate) const { return probability(class_of(candidate)); }

double Worth::expect(Layer layer, Expert expert, const Candidate & candidate) {
    const size_t at = class_of(candidate);
    told_[size_t(layer)].push_back({expert, at});
    return probability(at);
}

double Worth::gain(double p) const { return p - victim_ - copy_cost_ - (1 - p) * congestion_ / 2; }

void Worth::gate_passed(bool waited) {
    constexpr double weight = 1.0 / 64;
    congestion_ += weight * ((waited ? 1.0 : 0.0) - congestion_);
}

double Worth::urgency(int32_t n_ahead) const {
    double urgency = 1;  // not std::pow, which rounds differently on other systems
    for (int32_t i = 1; i < n_ahead; i++) {
        urgency *= congestion_;
    }
    return urgency;
}

void Worth::judge(Layer layer, std::span<const uint8_t> needed) {
    for (const Told & told : told_[size_t(layer)]) {
        const bool used = needed[size_t(told.expert)] != 0;
        classes_[told.at].add(used);
        ranks_[told.at / n_keep].add(used);
        Keeps & keeps = keeps_[told.at / (n_keep * n_distance) != 0][told.at / n_keep % n_distance];
        keeps.classes[told.at % n_keep].add(used);
        keeps.all.add(used);
    }
    forget(layer);
}

}  // namespace outrider
