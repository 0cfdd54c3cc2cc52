// Computes a layer's experts in waves: some (token, expert) pairs now, others when their experts
// have arrived. A wave is the segment's own chain of operations, cloned with the pairs in place of
// (chosen expert, token), so that every architecture's activation, clamp and bias comes along.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "../core/types.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "segment.h"

namespace outrider {

// One row of a wave: what `expert`, chosen as number `choice` by `token`, makes of its input.
struct Pair {
    int32_t token;
    int32_t choice;
    Expert expert;
    Slot slot;
};

class WaveRunner {
  public:
    // Computes on `device`. `is_expert_tensor` tells the model's expert tensors from others.
    WaveRunner(ggml_backend_dev_t device, int n_thread, std::function<bool(const ggml_tensor *)> is_expert_tensor);
    ~WaveRunner();
    WaveRunner(const WaveRunner &) = delete;
    WaveRunner & operator=(const WaveRunner &) = delete;

    void begin();
    // Copies what `node` of the segment reads from outside: the segment's result, and nodes that
    // llama.cpp computes between the segment's own, may be given the same memory.
    // REQUIRES: everything before `node` but the segment itself has been computed.
    void keep_inputs(const Segment & segment, const ggml_tensor * node);
    // Computes these pairs and writes their rows into the segment's last node. Throws
    // std::runtime_error when the device refuses. REQUIRES: the inputs of all its nodes were kept;
    // the slots are ready.
    void run(const Segment & segment, std::span<const Pair> pairs);

  private:
    static constexpr size_t max_pair = 1024;  // in one graph: bounds the memory of a wave

    void run_some(const Segment & segment, std::span<const Pair> pairs);

    ggml_backend_t backend_;
    ggml_gallocr_t allocator_;
    std::function<bool(const ggml_tensor *)> is_expert_tensor_;
    std::vector<uint8_t> meta_;  // headers of a wave's tensors

    struct Kept {
        const ggml_tensor * source;
        ggml_tensor * rows;  // [ne0, ne1 * n_token]
    };
    std::vector<Kept> kept_;
    std::vector<ggml_backend_buffer_t> kept_buffers_;  // of kept_, used again by the next layer
    std::vector<uint8_t> kept_meta_;
    ggml_context * kept_context_ = nullptr;
};

}  // namespace outrider
