// A matrix of learned weights, in the form in which it is multiplied.
#pragma once

#include "core/spec.h"

namespace outrider {

// The floats of a spec, or bytes with a factor for each row: a quarter of the memory to read, which bounds the product
// with a large matrix.
class Matrix {
  public:
    Matrix() = default;
    Matrix(std::shared_ptr<const Array> floats, bool as_bytes);

    explicit operator bool() const { return n_row_ > 0; }
    int32_t n_row() const { return n_row_; }
    int32_t n_col() const { return n_col_; }

    // y[row] += sum over i of matrix[row][i] * x[i]. With bytes x is rounded too: at 1000 columns to a
    // 16 000th of its largest value, at 2000 to an 8000th, and so on.
    void add_product(const float * x, float * y);

  private:
    int32_t n_row_ = 0;
    int32_t n_col_ = 0;
    std::shared_ptr<const Array> floats_;  // null: bytes
    std::vector<int8_t> bytes_;
    std::vector<float> scales_;  // [row]
    std::vector<int16_t> x_;     // of a product in progress
    std::vector<int32_t> y_;
};

}  // namespace outrider
