#include "live/measure/speed.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "ggml-cpp.h"
#include "live/ggml/clock.h"
#include "live/ggml/repack.h"

namespace outrider {
namespace {

constexpr int64_t side = 2048;  // of the matrices
constexpr int n_matrix = 48;    // together larger than any cache
constexpr int n_matrix_many = 4;
constexpr int n_token_many = 64;
constexpr int n_step = 256;
constexpr int64_t many_bytes = int64_t(96) << 20;

// Return the shortest time of the graph, in microseconds, over the runs that fit in `seconds`. Other work on the
// machine only makes runs longer.
double shortest_us(ggml_backend_t backend, double seconds,
                   const std::function<void(ggml_context *, ggml_cgraph *)> & build) {
    constexpr size_t max_node = 1024;
    const ggml_context_ptr context(
        ggml_init({ggml_tensor_overhead() * max_node + ggml_graph_overhead_custom(max_node, false), nullptr, true}));
    ggml_cgraph * graph = ggml_new_graph_custom(context.get(), max_node, false);
    build(context.get(), graph);
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(context.get(), backend));
    if (!buffer) {
        throw std::runtime_error("There is not enough memory to measure this machine");
    }
    ggml_backend_buffer_clear(buffer.get(), 0);
    double shortest = std::numeric_limits<double>::infinity();
    const double end_us = double(now_us()) + seconds * 1e6;
    for (int i = 0; i < 3 || double(now_us()) < end_us; i++) {
        const uint64_t began_us = now_us();
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("ggml could not compute what measures this machine");
        }
        shortest = std::min(shortest, double(now_us() - began_us));
    }
    return shortest;
}

ggml_backend_ptr cpu(int n_thread) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_ptr backend(device ? ggml_backend_dev_init(device, nullptr) : nullptr);
    if (!backend) {
        throw std::runtime_error("The processor could not be used");
    }
    const auto set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    if (set_n_threads) {
        set_n_threads(backend.get(), n_thread);
    }
    return backend;
}

double products_us(ggml_backend_t backend, double seconds, int n, int n_token) {
    return shortest_us(backend, seconds, [&](ggml_context * ctx, ggml_cgraph * graph) {
        ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, side, n_token);
        for (int i = 0; i < n; i++) {
            ggml_tensor * weights = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, side, side);
            ggml_build_forward_expand(graph, ggml_mul_mat(ctx, weights, x));
        }
    });
}

}  // namespace

double measure_product(int type_id, int64_t n_column, int64_t n_row, int n_token, int n_thread, bool repacked,
                       double seconds) {
    const auto type = ggml_type(type_id);
    const ggml_backend_ptr backend = cpu(n_thread);
    // Together larger than any cache.
    const auto n = std::clamp<int64_t>(many_bytes / int64_t(matrix_bytes(type, n_column, n_row)), 1, 256);
    const ggml_context_ptr context(ggml_init({ggml_tensor_overhead() * size_t(n + 1), nullptr, true}));
    for (int64_t i = 0; i < n; i++) {
        ggml_new_tensor_2d(context.get(), type, n_column, n_row);
    }
    const auto buft = repacked ? repack_buffer_type() : ggml_backend_get_default_buffer_type(backend.get());
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), buft));
    if (!buffer) {
        throw std::runtime_error("There is not enough memory to measure this machine");
    }
    ggml_backend_buffer_clear(buffer.get(), 0);
    return shortest_us(backend.get(), seconds,
                       [&](ggml_context * ctx, ggml_cgraph * graph) {
                           ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n_column, n_token);
                           for (auto * w = ggml_get_first_tensor(context.get()); w;
                                w = ggml_get_next_tensor(context.get(), w)) {
                               ggml_build_forward_expand(graph, ggml_mul_mat(ctx, w, x));
                           }
                       }) /
           double(n);
}

ComputeSpeed measure_compute(int n_thread, double seconds) {
    const ggml_backend_ptr backend = cpu(n_thread);
    const double part_s = seconds / 3;
    ComputeSpeed speed;
    const double n_byte = double(n_matrix) * double(ggml_row_size(GGML_TYPE_Q4_0, side)) * double(side);
    speed.memory_bytes_per_us = n_byte / products_us(backend.get(), part_s, n_matrix, 1);
    speed.flop_per_us = 2.0 * n_matrix_many * double(side) * double(side) * n_token_many /
                        products_us(backend.get(), part_s, n_matrix_many, n_token_many);
    speed.step_us = shortest_us(backend.get(), part_s,
                                [](ggml_context * ctx, ggml_cgraph * graph) {
                                    ggml_tensor * y = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 32);
                                    ggml_tensor * x = y;
                                    for (int i = 0; i < n_step; i++) {
                                        x = ggml_add(ctx, x, y);
                                    }
                                    ggml_build_forward_expand(graph, x);
                                }) /
                    n_step;
    return speed;
}

}  // namespace outrider
