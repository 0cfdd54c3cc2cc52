// Computes a layer's experts in waves: some (token, expert) pairs now, others when their experts arrive. A wave is a
// clone of the segment's operations over these pairs, so activations, clamps and biases are the model's own. For a part
// of a cut expert the clone uses narrower matrices.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "core/types.h"
#include "ggml-cpp.h"
#include "live/graph/segment.h"

namespace outrider {

// A row of a wave: the output of `expert`, the choice number `choice` of `token`.
struct Pair {
    int32_t token;
    int32_t choice;
    Expert expert;
    Slot slot;
};

class WaveRunner {
  public:
    // Returns the slots for this part of an expert tensor's experts, null for other tensors (Slab::slots_of).
    using SlotsOf = std::function<ggml_tensor *(const ggml_tensor *, Part)>;
    // Returns a readable copy of a weight that is not routed, if the device cannot read the model's.
    using ConstantOf = std::function<ggml_tensor *(ggml_tensor *)>;

    // `max_row`: maximum number of pairs of a pass. The first wave allocates memory for the largest wave of such a
    // pass; 0: each wave allocates its own buffers. Throws std::runtime_error.
    WaveRunner(ggml_backend_dev_t device, int n_thread, size_t max_row, SlotsOf slots_of, ConstantOf constant_of = {});
    WaveRunner(const WaveRunner &) = delete;
    WaveRunner & operator=(const WaveRunner &) = delete;

    // Compute on `stream` from now on, the backend on which llama.cpp computes this device's nodes. Data sent there
    // needs no wait. Null: on a backend of our own. REQUIRES: the device is not the host.
    void use_stream(ggml_backend_t stream) { stream_ = stream; }
    ggml_backend_t stream() const { return stream_ ? stream_ : backend_.get(); }
    // Send bytes to a tensor that the next graph on stream() reads. `staging`: memory of pinned_memory() that nothing
    // uses until the next wait for stream().
    void send(ggml_tensor * to, std::span<const int32_t> from, ggml_backend_buffer_t staging);

    // Begin a layer.
    void begin();
    // Copy what `node` of the segment reads from outside. The segment's result, and nodes that llama.cpp computes
    // between the segment's nodes, may reuse that memory. REQUIRES: all nodes before `node` outside the segment have
    // been computed.
    void keep_inputs(const Segment & segment, const ggml_tensor * node);
    // Compute this part of the pairs' experts, and write the rows into the segment's last node or, with `add`, add them
    // to it (the second of two parts). Throws std::runtime_error if the device refuses. REQUIRES: the inputs of all
    // nodes were kept; the slots are ready.
    void run(const Segment & segment, std::span<const Pair> pairs, Part part, bool add);
    // Compute whole experts, and put the rows into `rows`, in the order of the pairs, each as wide as the segment's
    // last node. Otherwise as run(). REQUIRES: the device is the host.
    void compute_rows(const Segment & segment, std::span<const Pair> pairs, std::span<float> rows);
    // Write rows that were computed elsewhere into the segment's last node.
    void write_rows(const Segment & segment, std::span<const Pair> pairs, std::span<const float> rows);
    // Return the microseconds of `n_row` rows of one expert. `slots`: a tensor for each of its matrices.
    double measure(std::span<ggml_tensor * const> slots, int32_t n_row);

    // Return the number of computed graphs, and the device's time for them.
    uint64_t n_graph() const { return n_graph_; }
    uint64_t graph_us() const { return graph_us_; }

  private:
    // The shape of a wave's mat-muls. Rows beyond the pairs are padding; their results are dropped.
    struct Form {
        int64_t n_choice;
        int64_t n_token;
        bool pairs_up = false;  // the rows are in the order of pair_up()
        int64_t n_row() const { return n_choice * n_token; }
    };
    // The inputs of a wave's graph: views of one tensor, which is uploaded at once.
    struct Indices {
        ggml_tensor * all;  // [n_row, padded; n_index]
        ggml_tensor * slots;  // [n_choice, n_token]
        ggml_tensor * experts;  // [n_choice, n_token]
        ggml_tensor * tokens;  // [n_row]
        ggml_tensor * rows;  // [n_row]: index of (token, choice)
    };
    static constexpr int64_t n_index = 4;
    // Put a wave's rows into the segment's last node, add them to it, or leave them in the wave.
    enum class Rows : uint8_t { put, added, left };
    struct Wave {
        ggml_cgraph * graph = nullptr;
        Form form{};
        Indices indices{};
        int32_t n_slot = 0;
        ggml_tensor * out = nullptr;  // the segment's last node; null if the rows are left
        ggml_tensor * written = nullptr;  // the graph's last node
    };
    // A wave of one token, kept for the next token: llama.cpp's graph is the same.
    struct KeptWave {
        std::vector<uint8_t> meta;  // headers of its tensors
        ggml_context_ptr context;
        Wave wave;
        std::vector<uint8_t> made_of;  // see note_sources()
    };
    // The first expert tensor identifies the layer.
    using WaveKey = std::tuple<const ggml_tensor *, size_t, Part, Rows>;

    Form form_of(std::span<const Pair> pairs, int64_t n_token) const;
    void reserve(const Segment & segment, Part part, Rows how);
    void run_some(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how, std::span<float> rows);
    void run_token(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how, std::span<float> rows);
    void make_kept(KeptWave & kept, const Segment & segment, std::span<const Pair> pairs, Part part, Rows how);
    void place(KeptWave & kept, size_t n_pair, size_t n_choice);
    void note_sources(const Segment & segment);
    Wave build(ggml_context * ctx, const Segment & segment, Form form, int64_t n_pair, Part part, Rows how);
    ggml_tensor * result_leaf(ggml_context * ctx, const Segment & segment) const;
    ggml_tensor * clone_chain(ggml_context * ctx, const Segment & segment, const Indices & indices, Part part);
    void put_rows(const Segment & segment, std::span<const Pair> pairs, std::span<const float> rows);
    void set_indices(const Wave & wave, const Segment & segment, std::span<const Pair> pairs);
    void compute(const Wave & wave);
    static void read_rows(const Wave & wave, std::span<float> rows);

    ggml_backend_ptr backend_;  // first: it must be freed after its buffers
    bool is_host_;  // computes in host memory, with the CPU's kernels
    size_t max_pair_;  // in one graph: bounds the memory of a wave
    ggml_gallocr_ptr allocator_;
    size_t n_reserved_;  // pairs of the largest wave
    bool is_reserved_;
    SlotsOf slots_of_;
    ConstantOf constant_of_;
    std::vector<uint8_t> meta_;  // headers of a wave's tensors
    std::map<WaveKey, KeptWave> kept_waves_;
    ggml_backend_buffer_ptr arena_;  // all kept waves share it: they run one at a time
    std::vector<uint8_t> made_of_;
    std::vector<Pair> rows_;  // of a wave, padding included
    std::vector<int32_t> i32_;
    ggml_backend_t stream_ = nullptr;  // llama.cpp's, or null
    ggml_backend_buffer_ptr staging_;  // of a wave's indices
    ggml_backend_buffer_ptr row_staging_;  // of put_rows()
    size_t n_staged_row_ = 0;  // of this layer
    uint64_t n_graph_ = 0;
    uint64_t graph_us_ = 0;

    struct Kept {
        const ggml_tensor * source;
        ggml_tensor * rows;  // [ne0, ne1 * n_token]
    };
    std::vector<Kept> kept_;
    std::vector<ggml_backend_buffer_ptr> kept_buffers_;  // of kept_; the next layer reuses them
    std::vector<uint8_t> kept_meta_;
    ggml_context_ptr kept_context_;
};

}  // namespace outrider
