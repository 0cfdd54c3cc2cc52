// The fast tier: for every pool of slots the memory on the device that computes, and the model's
// expert tensors pointed at it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/layout.h"
#include "ggml-backend.h"
#include "live/io/expert_files.h"
#include "live/io/read_ring.h"

namespace outrider {

class HostStore;

// One routed-expert tensor of the model and where its experts come from.
struct ExpertTensor {
    ggml_tensor * tensor;   // the model's own; ne[2] experts of nb[2] bytes
    Layer layer;            // among the MoE layers
    Chunk chunk;            // among the tensors of its layer, in the order of the pack or the file
    TensorPlace place;      // in the model's file
    std::optional<TensorPlace> packed;  // in its pack
    uint64_t expert_bytes;  // of one expert in this tensor
    bool is_down;           // the hidden width runs along its rows, so that it is cut by columns
    ggml_backend_dev_t device;  // that computes with it
    ggml_backend_buffer_type_t memory = nullptr;  // where its slots are; null: where the device computes
};

// A device cannot compute with slots of this size in one tensor.
class SlotsTooLarge : public std::runtime_error {
  public:
    SlotsTooLarge(const ggml_tensor & slots, uint64_t size_bytes, ggml_backend_buffer_type_t memory);

    std::string tensor;
    uint64_t bytes;
    std::string device;

  private:
    SlotsTooLarge(const std::string & name, uint64_t size_bytes, const std::string & device_name);
};

// Puts a header at a place in a buffer, as the device's backend wants it.
void place_tensor(ggml_tensor & tensor, ggml_backend_buffer_t buffer, void * address);

class Slab {
  public:
    // Allocates the layout's slots on the tensors' devices and points those of every layer that is
    // not cut at them. `files` are read by fill() and must outlive the slab. With `repack`, slots on the
    // host hold what the CPU backend can lay out for its fastest kernels in that way. Throws std::runtime_error when
    // the memory is not there. REQUIRES: the tensors are as llama.cpp made them; the layout fits the shape.
    Slab(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
         const Layout & layout, bool repack);
    // Gives the tensors back what they had.
    ~Slab();
    Slab(const Slab &) = delete;
    Slab & operator=(const Slab &) = delete;

    // The tensor whose ne[2] matrices are the slots for this part of the experts of `own`, one of
    // the model's: itself where its layer is not cut. Null: not an expert tensor.
    ggml_tensor * slots_of(const ggml_tensor * own, Part part) const;

    // Copies one chunk of a part of an expert, or all of them, from its file into its slot; what
    // lies together is read at once. Any thread, as long as nobody else uses the slots. Throws
    // std::runtime_error.
    void fill(std::span<const Copy> copies) const;
    // Likewise from the host's store, which has the bytes.
    void send(const Copy & copy, const HostStore & from) const;
    // Whether the second copy's bytes lie behind those of the first, so that one read brings both.
    bool joins(const Copy & first, const Copy & second) const;
    // Whether all copies can be reads of whole blocks into whole blocks of the host's memory.
    bool in_blocks() const;
    // Those reads, appended. REQUIRES: in_blocks().
    void reads(std::span<const Copy> copies, std::vector<ReadRing::Read> & reads) const;
    // The host's memory that holds the slots.
    std::vector<std::span<uint8_t>> memory() const;
    // What such a copy brings; more may be read for it.
    uint64_t bytes_of(const Copy & copy) const;

    uint64_t bytes() const { return bytes_; }

  private:
    // One matrix of a part of a layer's experts: how it lies in the file, and its slots. Of each
    // expert it is n_piece ranges of piece_bytes, the first at skip_bytes, one every row_bytes.
    struct Home {
        const DirectFile * file;
        uint64_t offset;  // in the file, of the first expert
        uint64_t stride;  // in the file, from one expert to the next
        uint64_t matrix_bytes;  // of a whole expert
        ggml_backend_buffer_type_t memory;  // of its slots
        bool on_host;  // and that is the host's
        bool repacked;  // in its slots
        bool repacked_in_file;
        uint64_t skip_bytes;
        uint64_t piece_bytes;
        uint64_t row_bytes;
        int64_t n_piece;
        ggml_tensor * slots;

        uint64_t bytes() const { return piece_bytes * uint64_t(n_piece); }
        uint64_t first() const { return offset + skip_bytes; }
        uint64_t begin(Expert expert) const { return first() + uint64_t(expert) * stride; }
        uint64_t end(Expert expert) const { return begin(expert) + bytes(); }
        uint8_t * in_slot(Slot slot) const { return static_cast<uint8_t *>(slots->data) + size_t(slot) * slots->nb[2]; }
        uint64_t room() const { return slots->nb[2] - bytes(); }  // behind it in its slot
    };
    using Homes = std::vector<Home>;  // [chunk]
    class Ranges;  // to be read

    bool goes_straight(const Home & home) const;
    bool is_in_blocks(const Home & home) const;

    Home home_of(const ExpertTensor & t, const LayerLayout & layer, const Shape & shape, Part part);
    void show_one(const ExpertTensor & t);
    void allocate(std::vector<Home *> & homes, int32_t n_slot);
    void release();
    void fill_chunk(const Home & home, Expert expert, Slot slot) const;
    static void gather(const Home & home, const uint8_t * matrix, uint8_t * to);
    template <typename Use>
    void for_chunks(const Copy & copy, Use && use) const;

    const ExpertFiles & files_;
    std::vector<std::array<Homes, n_place>> homes_;  // [layer][part]
    std::unordered_map<const ggml_tensor *, std::array<ggml_tensor *, n_place>> slots_;  // [own][part]
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> saved_;  // the model's own, as llama.cpp made them
    std::vector<std::unique_ptr<ggml_tensor>> own_tensors_;  // of parts and stages
    std::vector<ggml_backend_buffer_t> buffers_;
    uint64_t bytes_ = 0;
    bool repack_;
};

}  // namespace outrider
