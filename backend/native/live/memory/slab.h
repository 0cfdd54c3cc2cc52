// The fast tier: memory for every pool of slots, on the device that computes, and the model's expert tensors pointed at
// it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/layout.h"
#include "ggml-cpp.h"
#include "live/io/copy_stream.h"
#include "live/io/expert_files.h"
#include "live/io/read_ring.h"

namespace outrider {

class HostStore;

// An expert tensor of the model and the source of its experts.
struct ExpertTensor {
    ggml_tensor * tensor;  // the model's; ne[2] experts of nb[2] bytes
    Layer layer;  // among the MoE layers
    Chunk chunk;  // among the layer's tensors, in the order of the pack or the file
    TensorPlace place;  // in the model's file
    std::optional<TensorPlace> packed;  // in the pack
    uint64_t expert_bytes;  // of one expert in this tensor
    bool is_down;  // its rows are as long as the hidden width: cut by columns
    ggml_backend_dev_t device;  // computes with it
    ggml_backend_buffer_type_t memory = nullptr;  // of its slots; null: the device's
};

// The message of every std::runtime_error for want of memory. Python compares with it.
inline constexpr char no_memory[] = "There is not enough memory for the expert cache";

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

// Place a tensor at an address in a buffer, and let the backend initialise it. Throws std::runtime_error.
void place_tensor(ggml_tensor & tensor, ggml_backend_buffer_t buffer, void * address);

class Slab {
  public:
    // Allocate the layout's slots on the tensors' devices, and point the tensors of layers that are not cut at them.
    // `files` must outlive the slab. With `repack`, slots on the host have the CPU backend's fastest layout if it has
    // one for the matrix. `old`: an earlier slab of the tensors, after leave_tensors(), or null; where its slots have
    // the same form, their memory on the host is used again, and slots with the same number keep their bytes. `made` is
    // called when a pool is there, and may take experts of its layers; then their memory in `old` is freed, so that a
    // device need not hold both slabs. While memory is short, the last layers lose their experts. Throws
    // std::runtime_error if memory is short even then. REQUIRES: the tensors are as llama.cpp made them; the layout
    // fits the shape.
    using Made = std::function<void(const Slab & slab, Pool pool)>;
    Slab(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
         const Layout & layout, bool repack, Slab * old = nullptr, const Made & made = {});
    // Restore the tensors.
    ~Slab() { restore(); }
    Slab(const Slab &) = delete;
    Slab & operator=(const Slab &) = delete;

    // Return the tensor whose ne[2] matrices are the slots for this part of the experts of `own`. That is `own` if its
    // layer is not cut. Null if `own` is no expert tensor.
    ggml_tensor * slots_of(const ggml_tensor * own, Part part) const;

    // Copy from the file into slots; adjacent bytes are read at once. Any thread, while nothing else uses the slots.
    // Throws std::runtime_error.
    void fill(std::span<const Copy> copies) const;
    // The same from the host store, which must have the bytes. `begun`: as CopyStream::send(). REQUIRES: all of one
    // layer.
    void send(std::span<const Copy> copies, const HostStore & from, const CopyStream::Begun & begun) const;
    // Compare bytes that fill() did not read with the pack's checksums. Throws std::runtime_error.
    void check(std::span<const Copy> copies) const;
    // Return whether a slot's bytes differ from the file's. REQUIRES: the copy has ended. Throws std::runtime_error if
    // the file cannot be read.
    bool differs(const Copy & copy) const;
    // Return whether the second copy's bytes follow those of the first, so that one read brings both.
    bool joins(const Copy & first, const Copy & second) const;
    // Return whether all copies can be reads of whole blocks into whole blocks of host memory.
    bool in_blocks() const;
    // Append those reads. REQUIRES: in_blocks().
    void reads(std::span<const Copy> copies, std::vector<ReadRing::Read> & reads) const;
    // Give the tensors back to llama.cpp, and keep the slots' bytes. Afterwards only take() may read this slab.
    void leave_tensors();
    // Return whether the layer's slots can be filled from those of another slab of the same tensors: both are in the
    // host's memory, and the experts' tops there are as large or larger, or both are on the layer's device, and the
    // tops are equal.
    bool can_take(const Slab & from, Layer layer) const;
    // Return whether the layer's slots lie in that slab's memory, so that experts may stay in their slots.
    bool shares(const Slab & from, Layer layer) const;
    // Copy an expert of the layer, or its top, from a slot of that slab, and free the pages of that slot if they are
    // not shared. Return the bytes in the host's memory. REQUIRES: can_take().
    uint64_t take(const Slab & from, Layer layer, Slot from_slot, Slot slot) const;
    // Free the pages of that slab's memory that lie behind the slots of this one.
    void trim(const Slab & from) const;
    // Return the host memory that holds slots.
    const std::vector<std::span<uint8_t>> & memory() const { return host_memory_; }
    // Return the bytes of the copy. The read may be longer.
    uint64_t bytes_of(const Copy & copy) const;
    // Return the drive that the copy reads, below n_drive().
    size_t drive_of(const Copy & copy) const;
    size_t n_drive() const { return files_.n_drive(); }

    uint64_t bytes() const { return bytes_; }
    // Return whether all memory is of the type that was asked for. A driver that has no pinned memory left gives
    // ordinary memory.
    bool has_memory_asked_for() const { return has_memory_asked_for_; }

  private:
    // One matrix of a part of a layer's experts: its place in the file, and its slots. For each expert it has n_piece
    // ranges of piece_bytes in the file: the first at skip_bytes, one every row_bytes.
    struct Home {
        const ExpertFiles * files;
        TensorPlace place;  // with a stride; its checksums are of whole experts
        uint64_t matrix_bytes;  // of a whole expert
        ggml_backend_buffer_type_t memory;  // of its slots
        bool on_host;  // the memory is the host's
        bool repacked;  // in its slots
        uint64_t skip_bytes;
        uint64_t piece_bytes;
        uint64_t row_bytes;
        int64_t n_piece;
        ggml_tensor * slots;
        std::shared_ptr<ggml_backend_buffer> buffer;  // of the slots
        Chunk chunk;
        int32_t n_chunk;  // of the layer

        uint64_t bytes() const { return piece_bytes * uint64_t(n_piece); }
        uint64_t first() const { return place.offset + skip_bytes; }
        uint64_t begin(Expert expert) const { return place.at(expert).offset + skip_bytes; }
        const DirectFile & file(Expert expert) const { return *files->files()[place.at(expert).part]; }
        uint64_t end(Expert expert) const { return begin(expert) + bytes(); }
        uint8_t * in_slot(Slot slot) const { return static_cast<uint8_t *>(slots->data) + size_t(slot) * slots->nb[2]; }
        uint64_t room() const { return slots->nb[2] - bytes(); }  // after it in its slot
    };
    using Homes = std::vector<Home>;  // [chunk]
    // Address space for as many slots as a pool can ever have. Only slots that are used take memory.
    struct Reserved {
        std::shared_ptr<uint8_t> begin;
        size_t size;
        size_t used;  // by the pool's slots

        // The properties that make the memory fit another slab:
        size_t pool;
        Chunk chunk;
        size_t n_home;
        uint64_t stride;
        ggml_backend_buffer_type_t type;
    };
    class Ranges;

    bool goes_straight(const Home & home) const;
    bool is_in_blocks(const Home & home) const;

    Home home_of(const ExpertTensor & t, const LayerLayout & layer, const Shape & shape, Part part);
    void show_one(const ExpertTensor & t);
    void forget(Layer layer) { homes_[size_t(layer)] = {}; }  // frees what only its slots use
    bool forget_last();
    void allocate(std::vector<Home *> & homes, Reserved wanted, int32_t n_slot, int32_t n_most, Slab * old,
                  bool shares);
    bool reserve(Reserved & wanted, const Slab * old);
    void restore();
    const uint8_t * as_in_slot(const Home & home, Expert expert, uint8_t * to) const;
    void fill_chunk(const Home & home, Expert expert, Slot slot) const;
    static void compare(const Home & home, Expert expert, const uint8_t * bytes);
    static void gather(const Home & home, const uint8_t * matrix, uint8_t * to);
    template <typename Use>
    void for_chunks(const Copy & copy, Use && use) const;

    const ExpertFiles & files_;
    std::vector<std::array<Homes, n_place>> homes_;  // [layer][part]
    std::unordered_map<const ggml_tensor *, std::array<ggml_tensor *, n_place>> slots_;  // [own][part]
    std::vector<std::pair<ggml_tensor *, ggml_tensor>> saved_;  // as llama.cpp made them
    std::vector<std::unique_ptr<ggml_tensor>> own_tensors_;  // of parts and stages
    std::vector<ggml_backend_buffer_ptr> shown_;  // show_one()
    std::vector<Reserved> reserved_;
    std::vector<std::span<uint8_t>> host_memory_;
    uint64_t bytes_ = 0;
    bool has_memory_asked_for_ = true;
    bool repack_;
};

}  // namespace outrider
