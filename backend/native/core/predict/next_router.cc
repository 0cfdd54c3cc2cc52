#include "next_router.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

namespace outrider {
namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define OUTRIDER_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define OUTRIDER_CLONES
#endif

// scores[e] = sum_i router[e][i] * x[i]. Independent partial sums let the compiler vectorise.
OUTRIDER_CLONES void mat_vec(const float * router, const float * x, int32_t n_row, int32_t n_col, float * scores) {
    constexpr int32_t width = 32;
    for (int32_t row = 0; row < n_row; row++) {
        const float * w = router + int64_t(row) * n_col;
        float sums[width] = {};
        int32_t i = 0;
        for (; i + width <= n_col; i += width) {
            for (int32_t j = 0; j < width; j++) {
                sums[j] += w[i + j] * x[i + j];
            }
        }
        float total = 0;
        for (; i < n_col; i++) {
            total += w[i] * x[i];
        }
        for (float s : sums) {
            total += s;
        }
        scores[row] = std::isfinite(total) ? total : -std::numeric_limits<float>::max();
    }
}

}  // namespace

NextRouter::NextRouter(int32_t n_embd, int32_t n_expert, std::vector<std::span<const float>> routers)
    : n_embd_(n_embd), n_expert_(n_expert), routers_(std::move(routers)), scores_(n_expert), votes_(n_expert) {
    for ([[maybe_unused]] const auto & r : routers_) {
        assert(r.empty() || r.size() == size_t(n_embd) * size_t(n_expert));
    }
}

Forecast NextRouter::predict(Layer layer, std::span<const float> input, int32_t n_token, int32_t n_predict) {
    const Layer target = layer + 1;
    if (target >= Layer(routers_.size()) || routers_[target].empty() || n_token <= 0) {
        return {};
    }
    assert(input.size() >= size_t(n_token) * size_t(n_embd_));
    n_predict = std::min(n_predict, n_expert_);

    std::vector<Expert> best(n_expert_);
    std::iota(best.begin(), best.end(), 0);
    const auto sort_by = [&](const std::vector<float> & value) {
        std::partial_sort(best.begin(), best.begin() + n_predict, best.end(),
                          [&](Expert a, Expert b) { return value[a] != value[b] ? value[a] > value[b] : a < b; });
    };

    const int32_t n_asked = std::min(n_token, max_token);
    std::fill(votes_.begin(), votes_.end(), 0.0f);
    for (int32_t i = 0; i < n_asked; i++) {
        const int64_t token = int64_t(n_token - 1) - int64_t(i) * n_token / n_asked;
        mat_vec(routers_[target].data(), input.data() + token * n_embd_, n_expert_, n_embd_, scores_.data());
        const float top = *std::max_element(scores_.begin(), scores_.end());
        for (int32_t e = 0; e < n_expert_; e++) {
            votes_[e] += std::exp(scores_[e] - top);
        }
    }
    // One token: order by the scores themselves, whose differences exp() may flush to zero.
    sort_by(n_asked == 1 ? scores_ : votes_);
    best.resize(n_predict);
    return {target, std::move(best)};
}

}  // namespace outrider
