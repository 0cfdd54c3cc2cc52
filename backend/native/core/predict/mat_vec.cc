#include "core/predict/mat_vec.h"

namespace outrider {
namespace {

// One build for all processors: the loader picks the variant, which ELF alone can. The sanitizers are not ready when
// it picks.
#if defined(__x86_64__) && defined(__ELF__) && defined(__GNUC__) && !defined(__clang__) && !defined(OUTRIDER_SANITIZE)
#define OUTRIDER_CLONES __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define OUTRIDER_CLONES
#endif

// Independent partial sums let the compiler vectorise.
constexpr int32_t width = 32;

}  // namespace

OUTRIDER_CLONES void add_mat_vec(const float * matrix, const float * x, int32_t n_row, int32_t n_col, float * y) {
    for (int32_t row = 0; row < n_row; row++) {
        const float * w = matrix + int64_t(row) * n_col;
        float sums[width] = {};
        int32_t i = 0;
        for (; i + width <= n_col; i += width) {
            for (int32_t j = 0; j < width; j++) {
                sums[j] += w[i + j] * x[i + j];
            }
        }
        for (int32_t j = 0; j < 16; j++) {
            sums[j] += sums[j + 16];
        }
        for (int32_t j = 0; j < 8; j++) {
            sums[j] += sums[j + 8];
        }
        float total = 0;
        for (; i < n_col; i++) {
            total += w[i] * x[i];
        }
        for (int32_t j = 0; j < 8; j++) {
            total += sums[j];
        }
        y[row] += total;
    }
}

OUTRIDER_CLONES void mat_vec(const int8_t * matrix, const int16_t * x, int32_t n_row, int32_t n_col, int32_t * y) {
    constexpr int32_t block = 64;
    for (int32_t row = 0; row < n_row; row++) {
        const int8_t * w = matrix + int64_t(row) * n_col;
        int32_t sum = 0;
        int32_t i = 0;
        for (; i + block <= n_col; i += block) {
            int16_t wide[block];  // products of pairs of 16 bits have an instruction of their own
            for (int32_t j = 0; j < block; j++) {
                wide[j] = w[i + j];
            }
            for (int32_t j = 0; j < block; j++) {
                sum += int32_t(wide[j]) * int32_t(x[i + j]);
            }
        }
        for (; i < n_col; i++) {
            sum += int32_t(w[i]) * int32_t(x[i]);
        }
        y[row] = sum;
    }
}

OUTRIDER_CLONES void add_scaled(const float * x, float factor, int32_t n, float * y) {
    for (int32_t i = 0; i < n; i++) {
        y[i] += factor * x[i];
    }
}

}  // namespace outrider
