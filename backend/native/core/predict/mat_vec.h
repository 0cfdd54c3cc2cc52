// The products in which neural predictors spend their time.
#pragma once

#include <cstdint>

namespace outrider {

// y[row] += sum over i of matrix[row][i] * x[i]
void add_mat_vec(const float * matrix, const float * x, int32_t n_row, int32_t n_col, float * y);
// y[row] = sum over i of matrix[row][i] * x[i], exactly. REQUIRES: no partial sum exceeds
// 2^31 - 1.
void mat_vec(const int8_t * matrix, const int16_t * x, int32_t n_row, int32_t n_col, int32_t * y);
// y[i] += factor * x[i]
void add_scaled(const float * x, float factor, int32_t n, float * y);

}  // namespace outrider
