// The host store, the middle tier if a device computes: experts in RAM, laid out as in the file. The memory is pinned
// if the device can copy from such memory by itself. The core knows the contents (core/host_level.h).
#pragma once

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "live/io/copy_stream.h"
#include "live/memory/slab.h"

namespace outrider {

class HostStore {
  public:
    // `n_slot`: [layer], experts that the store keeps; 0: none. Throws std::runtime_error if memory is short.
    HostStore(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
              const std::vector<int32_t> & n_slot);

    // Fills slots of this store from the file.
    const Slab & slab() const { return *slab_; }
    // Return the slots [ne0, ne1, n_slot] for `own`, one of the model's tensors. Null if its layer has none.
    ggml_tensor * slots_of(const ggml_tensor * own) const;
    // Return a matrix of the expert in a slot, and its size.
    const uint8_t * matrix(Layer layer, Chunk chunk, Slot slot) const;
    uint64_t matrix_bytes(Layer layer, Chunk chunk) const { return homes_[size_t(layer)][size_t(chunk)].n_byte; }
    // Return the stream to the layer's device.
    CopyStream & stream_to(Layer layer) const { return *stream_of_[size_t(layer)]; }
    const std::vector<std::unique_ptr<CopyStream>> & streams() const { return streams_; }

    uint64_t bytes() const { return slab_->bytes(); }
    bool is_pinned() const { return is_pinned_; }
    // Whether the memory is ordinary although pinned memory was asked for.
    bool lacks_pinned() const { return !slab_->has_memory_asked_for(); }
    // Return the bytes that have pages. `n_read`: read from the file since the caller's cache was made.
    uint64_t held_bytes(uint64_t n_read) const {
        return is_pinned_ ? bytes() : std::min(std::max(n_read, n_held_), bytes());
    }
    // The next cache keeps this store.
    void kept(uint64_t n_read) { n_held_ = held_bytes(n_read); }

  private:
    struct Home {
        ggml_tensor * slots = nullptr;
        uint64_t n_byte = 0;
    };

    CopyStream * stream_for(ggml_backend_dev_t device);

    std::vector<std::unique_ptr<ggml_tensor>> headers_;  // before the slab, which restores them
    std::unordered_map<const ggml_tensor *, ggml_tensor *> slots_;  // by the model's tensor
    std::vector<std::vector<Home>> homes_;                          // [layer][chunk]
    std::unique_ptr<Slab> slab_;
    std::vector<std::unique_ptr<CopyStream>> streams_;
    std::vector<CopyStream *> stream_of_;  // [layer]
    bool is_pinned_ = true;
    uint64_t n_held_ = 0;  // by earlier caches
};

}  // namespace outrider
