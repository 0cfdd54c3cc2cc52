// Computes a layer's experts in waves: some (token, expert) pairs now, others when their experts
// have arrived. A wave is the segment's own chain of operations, cloned with the pairs in place of
// (chosen expert, token), so that every architecture's activation, clamp and bias comes along. Of an
// expert that is cut, the same chain on narrower matrices computes a part.
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
    // For one of the model's expert tensors the one that holds this part of its experts in slots;
    // null for other tensors (Slab::slots_of).
    using SlotsOf = std::function<ggml_tensor *(const ggml_tensor *, Part)>;

    WaveRunner(ggml_backend_dev_t device, int n_thread, SlotsOf slots_of);
    ~WaveRunner();
    WaveRunner(const WaveRunner &) = delete;
    WaveRunner & operator=(const WaveRunner &) = delete;

    void begin();
    // Copies what `node` of the segment reads from outside: the segment's result, and nodes that
    // llama.cpp computes between the segment's own, may be given the same memory.
    // REQUIRES: everything before `node` but the segment itself has been computed.
    void keep_inputs(const Segment & segment, const ggml_tensor * node);
    // Computes this part of these pairs' experts and writes the rows into the segment's last node,
    // or, with `add`, adds them to what is there: the second of two parts. Throws
    // std::runtime_error when the device refuses. REQUIRES: the inputs of all its nodes were kept;
    // the slots are ready.
    void run(const Segment & segment, std::span<const Pair> pairs, Part part, bool add);

  private:
    static constexpr size_t max_pair = 1024;  // in one graph: bounds the memory of a wave

    struct Indices;  // of a wave's pairs

    void run_some(const Segment & segment, std::span<const Pair> pairs, Part part, bool add);
    ggml_tensor * clone_chain(ggml_context * ctx, const Segment & segment, const Indices & indices, Part part);

    ggml_backend_t backend_;
    ggml_gallocr_t allocator_;
    SlotsOf slots_of_;
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
