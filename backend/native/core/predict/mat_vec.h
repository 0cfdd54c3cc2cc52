// The one operation that neural predictors spend their time in.
#pragma once

#include <cstdint>

namespace outrider {

// y[row] += sum over i of matrix[row][i] * x[i]
void add_mat_vec(const float * matrix, const float * x, int32_t n_row, int32_t n_col, float * y);
// y[i] += factor * x[i]
void add_scaled(const float * x, float factor, int32_t n, float * y);

}  // namespace outrider
