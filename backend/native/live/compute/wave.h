// Computes a layer's experts in waves: some (token, expert) pairs now, others when their experts
// have arrived. A wave is the segment's own chain of operations, cloned with the pairs in place of
// (chosen expert, token), so that every architecture's activation, clamp and bias comes along. Of an
// expert that is cut, the same chain on narrower matrices computes a part.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "core/types.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "live/graph/segment.h"

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
    // For a weight that is not routed the one to read, where the device cannot read the model's own.
    using ConstantOf = std::function<ggml_tensor *(ggml_tensor *)>;

    // `max_row`: pairs of a pass at most, for the largest of whose waves memory is taken at once; 0: as it is needed.
    WaveRunner(ggml_backend_dev_t device, int n_thread, size_t max_row, SlotsOf slots_of, ConstantOf constant_of = {});
    ~WaveRunner();
    WaveRunner(const WaveRunner &) = delete;
    WaveRunner & operator=(const WaveRunner &) = delete;

    ggml_backend_t backend() const { return backend_; }

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
    // Computes whole experts' pairs and leaves their rows in `rows`, in the order of the pairs, each as wide as
    // the segment's last node. Otherwise as run().
    void compute_rows(const Segment & segment, std::span<const Pair> pairs, std::span<float> rows);
    // Writes rows that were computed elsewhere into the segment's last node.
    void write_rows(const Segment & segment, std::span<const Pair> pairs, std::span<const float> rows);
    // Microseconds that one expert in slots, all of whose matrices are in `slots`, takes for so many rows.
    double measure(std::span<ggml_tensor * const> slots, int32_t n_row);

    // Graphs computed so far, and the time that the device took for them: what is left of a wave's
    // time is our own.
    uint64_t n_graph() const { return n_graph_; }
    uint64_t graph_us() const { return graph_us_; }

  private:
    static constexpr size_t max_pair = 1024;  // in one graph: bounds the memory of a wave

    // How a wave's mat-muls arrange its rows. There may be more rows than pairs: the rest is padding, whose
    // results are dropped.
    struct Form {
        int64_t n_choice;
        int64_t n_token;
        int64_t n_row() const { return n_choice * n_token; }
    };
    // Numbers of a wave's pairs, as the graph takes them.
    struct Indices {
        ggml_tensor * slots;  // [n_choice, n_token]
        ggml_tensor * experts;  // [n_choice, n_token]
        ggml_tensor * tokens;  // [n_row]
        ggml_tensor * rows;  // [n_row]: of (token, choice)
        ggml_tensor * out_rows;  // [n_pair]: the same, for set_rows
    };
    // What becomes of a wave's rows: they are put into the segment's last node, added to what is there, or
    // left as they are.
    enum class Rows : uint8_t { put, added, left };
    struct Wave {
        ggml_cgraph * graph = nullptr;
        Indices indices{};
        int32_t n_slot = 0;  // that the wave can read
        ggml_tensor * out = nullptr;  // where the rows go: the segment's last node's memory; null where left
        ggml_tensor * written = nullptr;  // the same, when they are there
    };
    // A wave of one token, kept for the next one: llama.cpp computes the same graph for every token.
    struct KeptWave {
        std::vector<uint8_t> meta;  // headers of its tensors
        std::unique_ptr<ggml_context, void (*)(ggml_context *)> context{nullptr, ggml_free};
        Wave wave;
        std::vector<uint8_t> made_of;  // see note_sources()
    };
    // The first expert tensor stands for the layer.
    using WaveKey = std::tuple<const ggml_tensor *, size_t, Part, Rows>;

    Form form_of(int64_t n_pair, int64_t n_token) const;
    void reserve(const Segment & segment, Part part, Rows how);
    void run_some(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how, std::span<float> rows);
    void run_token(const Segment & segment, std::span<const Pair> pairs, Part part, Rows how, std::span<float> rows);
    void make_kept(KeptWave & kept, const Segment & segment, size_t n_pair, Part part, Rows how);
    void place(KeptWave & kept, size_t n_pair, size_t n_choice);
    void note_sources(const Segment & segment);
    Wave build(ggml_context * ctx, const Segment & segment, int64_t n_pair, Part part, Rows how);
    ggml_tensor * result_leaf(ggml_context * ctx, const Segment & segment) const;
    ggml_tensor * clone_chain(ggml_context * ctx, const Segment & segment, const Indices & indices, Part part);
    void set_indices(const Wave & wave, std::span<const Pair> pairs, int64_t n_choice);
    void compute(const Wave & wave);
    static void read_rows(const Wave & wave, std::span<float> rows);

    ggml_backend_t backend_;
    bool is_host_;  // it computes in the host's memory, with the CPU's kernels
    ggml_gallocr_t allocator_;
    size_t n_reserved_;  // pairs of the largest wave: memory for them is taken at the first one
    bool is_reserved_;
    SlotsOf slots_of_;
    ConstantOf constant_of_;
    std::vector<uint8_t> meta_;  // headers of a wave's tensors
    std::map<WaveKey, KeptWave> kept_waves_;
    ggml_backend_buffer_t arena_ = nullptr;  // all kept waves compute in the same memory, one at a time
    std::vector<uint8_t> made_of_;
    std::vector<Pair> rows_;  // of a wave, padding included
    std::vector<int32_t> i32_;
    std::vector<int64_t> i64_;
    uint64_t n_graph_ = 0;
    uint64_t graph_us_ = 0;

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
