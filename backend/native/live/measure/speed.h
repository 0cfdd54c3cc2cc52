// Measures ggml's computation with quantised weights, for the simulator's machine model.
#pragma once

#include <cstdint>

namespace outrider {

struct ComputeSpeed {
    double memory_bytes_per_us = 0;  // of weights, with one token
    double flop_per_us = 0;          // with many tokens
    double step_us = 0;              // of a minimal node
};

// Return the microseconds of a product of a matrix of `n_row` rows of `n_column` values with `n_token` vectors, in the
// file's layout or `repacked`. Takes about `seconds`. Throws std::runtime_error, a sentence. REQUIRES: can_repack() if
// `repacked`.
double measure_product(int type_id, int64_t n_column, int64_t n_row, int n_token, int n_thread, bool repacked,
                       double seconds);

// Takes about `seconds` and 100 MB. Throws std::runtime_error, a sentence.
ComputeSpeed measure_compute(int n_thread, double seconds);

}  // namespace outrider
