// How fast ggml computes here with quantised weights, for the simulator's machine model.
#pragma once

namespace outrider {

struct ComputeSpeed {
    double memory_bytes_per_us = 0;  // of weights, with one token
    double flop_per_us = 0;          // with many tokens
    double step_us = 0;              // a node that does next to nothing
};

// Takes about `seconds`, and a hundred megabytes. Throws std::runtime_error with a sentence.
ComputeSpeed measure_compute(int n_thread, double seconds);

}  // namespace outrider
