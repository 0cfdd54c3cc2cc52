#include "core/predict/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/predict/mat_vec.h"

namespace outrider {
namespace {

constexpr float most_byte = 127;
constexpr int32_t most_columns = 1 << 16;  // with more, x would lose too much precision

float largest(const float * values, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++) {
        // NaN counts as the largest value.
        most = std::abs(values[i]) <= most ? most : std::isnan(values[i]) ? INFINITY : std::abs(values[i]);
    }
    return most;
}

}  // namespace

Matrix::Matrix(std::shared_ptr<const Array> floats, bool as_bytes) {
    if (!floats) {
        return;
    }
    n_row_ = int32_t(floats->shape[0]);
    n_col_ = int32_t(floats->shape[1]);
    if (!as_bytes || n_col_ > most_columns) {
        floats_ = std::move(floats);
        return;
    }
    bytes_.resize(floats->values.size());
    x_.resize(size_t(n_col_));
    y_.resize(size_t(n_row_));
    for (int32_t row = 0; row < n_row_; row++) {
        const float * from = floats->values.data() + int64_t(row) * n_col_;
        const float scale = largest(from, n_col_) / most_byte;
        scales_.push_back(scale);
        for (int32_t i = 0; i < n_col_ && scale > 0; i++) {
            bytes_[size_t(row) * n_col_ + i] = int8_t(std::lrint(std::clamp(from[i] / scale, -most_byte, most_byte)));
        }
    }
}

void Matrix::add_product(const float * x, float * y) {
    if (floats_) {
        add_mat_vec(floats_->values.data(), x, n_row_, n_col_, y);
        return;
    }
    const float most = largest(x, n_col_);
    if (!std::isfinite(most)) {
        std::fill_n(y, n_row_, std::numeric_limits<float>::quiet_NaN());
        return;
    }
    if (most == 0) {
        return;
    }
    // As fine as 32-bit sums allow.
    const auto steps = float(std::min(INT32_MAX / (int32_t(most_byte) * n_col_), int32_t(INT16_MAX)));
    for (int32_t i = 0; i < n_col_; i++) {
        x_[size_t(i)] = int16_t(std::lrint(x[i] / most * steps));
    }
    mat_vec(bytes_.data(), x_.data(), n_row_, n_col_, y_.data());
    for (int32_t row = 0; row < n_row_; row++) {
        y[row] += float(y_[size_t(row)]) * scales_[size_t(row)] * (most / steps);
    }
}

}  // namespace outrider
