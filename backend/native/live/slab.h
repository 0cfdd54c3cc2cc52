// The fast tier: for every expert tensor room for n_slot experts on the device that computes, and
// the model's tensors pointed at it.
#pragma once

#include <string>
#include <vector>

#include "../core/types.h"
#include "expert_files.h"
#include "ggml-backend.h"

namespace outrider {

// One routed-expert tensor of the model and where its experts come from.
struct ExpertTensor {
    ggml_tensor * tensor;   // the model's own; ne[2] experts of nb[2] bytes
    Layer layer;            // among the MoE layers
    Chunk chunk;            // among the tensors of its layer, by file offset
    TensorPlace place;      // in the slow tier
    uint64_t expert_bytes;  // of one expert in this tensor
};

class Slab {
  public:
    // Allocates `n_slot[layer]` slots for every tensor on `buft` and points the tensors at them.
    // `files` are read by fill() and must outlive the slab. Throws std::runtime_error when the
    // memory is not there. REQUIRES: the tensors are as llama.cpp made them.
    Slab(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const std::vector<int32_t> & n_slot,
         ggml_backend_buffer_type_t buft);
    // Gives the tensors back what they had.
    ~Slab();
    Slab(const Slab &) = delete;
    Slab & operator=(const Slab &) = delete;

    // Copies one chunk, or the whole expert, from its file into its slot. Any thread, as long as
    // nobody else uses the slot. Throws std::runtime_error.
    void fill(const Copy & copy) const;

    uint64_t bytes() const { return bytes_; }

  private:
    struct Home {  // of one tensor
        const ExpertTensor * source;
        ggml_tensor saved;  // as llama.cpp made it
    };

    void fill_chunk(const Home & home, Expert expert, Slot slot) const;

    const std::vector<ExpertTensor> tensors_;
    const ExpertFiles & files_;
    std::vector<std::vector<Home>> homes_;  // [layer][chunk]
    std::vector<ggml_backend_buffer_t> buffers_;
    uint64_t bytes_ = 0;
    bool host_;
};

}  // namespace outrider
