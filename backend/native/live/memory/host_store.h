// The middle tier where a device computes: experts in the host's memory, as the file has them, in
// memory that the device copies from by itself where it has such (pinned), else in ordinary memory.
// What is in it is the core's to know (core/host_level.h).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "live/io/copy_stream.h"
#include "live/memory/slab.h"

namespace outrider {

class HostStore {
  public:
    // `n_slot`: experts of each layer, 0 where a layer's are not kept here. Throws std::runtime_error
    // when the memory is not there.
    HostStore(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
              const std::vector<int32_t> & n_slot);

    // Reads from the file; a copy's slot is one of this store.
    const Slab & slab() const { return *slab_; }
    // The matrices [ne0, ne1, slots] that the CPU may compute with, in place of `own`, one of the model's
    // tensors; null where its layer is not kept here.
    ggml_tensor * slots_of(const ggml_tensor * own) const;
    // One matrix of the expert in a slot, and its size.
    const uint8_t * matrix(Layer layer, Chunk chunk, Slot slot) const;
    uint64_t matrix_bytes(Layer layer, Chunk chunk) const { return homes_[size_t(layer)][size_t(chunk)].n_byte; }
    // Where the layer's experts are sent.
    CopyStream & stream_to(Layer layer) const { return *stream_of_[size_t(layer)]; }
    const std::vector<std::unique_ptr<CopyStream>> & streams() const { return streams_; }

    uint64_t bytes() const { return slab_->bytes(); }
    // Whether all of it is memory that devices copy from by themselves.
    bool is_pinned() const { return is_pinned_; }

  private:
    struct Home {
        ggml_tensor * slots = nullptr;
        uint64_t n_byte = 0;
    };

    CopyStream * stream_for(ggml_backend_dev_t device);

    std::vector<std::unique_ptr<ggml_tensor>> headers_;  // they outlive the slab, which restores them
    std::unordered_map<const ggml_tensor *, ggml_tensor *> slots_;  // by the model's own
    std::vector<std::vector<Home>> homes_;                          // [layer][chunk]
    std::unique_ptr<Slab> slab_;
    std::vector<std::unique_ptr<CopyStream>> streams_;
    std::vector<CopyStream *> stream_of_;  // [layer]
    bool is_pinned_ = true;
};

}  // namespace outrider
