// Computes the pieces of a token's graph on the scheduler's backend, and brings the routers' choices to the host. What
// the host sends, it sends from pinned memory on the same stream, so that it waits once for each choice and for nothing
// else. To run ahead, a table in the device's memory turns a layer's choice into slots there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ggml-cpp.h"
#include "live/graph/pieces.h"

namespace outrider {

// For one graph of llama.cpp. Belongs to the decoding thread.
class PieceRunner {
  public:
    // `ahead`: to run ahead if the device has the operation and events for it. Returns null if it lacks memory.
    static std::unique_ptr<PieceRunner> make(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph,
                                             bool ahead);
    ~PieceRunner() { finish(); }
    PieceRunner(const PieceRunner &) = delete;
    PieceRunner & operator=(const PieceRunner &) = delete;

    bool runs_ahead() const { return runs_ahead_; }

    const ggml_tensor * first() const { return pieces_.nodes.front(); }
    const std::vector<RoutedNodes> & layers() const { return pieces_.layers; }
    // Whether piece i may be computed before the choice of layers()[i - 1] is known.
    bool is_repeatable(size_t piece) const { return pieces_.repeatable[piece]; }

    // What of the routers comes to the host, beside the choice.
    struct Wanted {
        bool weights;
        bool input;
    };
    // Begin a token. Until end(), the graph is changed.
    void begin(Wanted wanted);
    void end();
    // For piece `layer` + 1: choice k of layers()[layer] is in slots[k]. If this runs ahead, expert e is in slots[e].
    void set_slots(size_t layer, std::span<const int32_t> slots);
    // Begin to compute a piece after those before, and to bring what it ends with. `remapped`: by the slots of
    // set_slots(); otherwise llama.cpp's own nodes are right. With `brings`, wait_for() may be called for it.
    void compute(size_t piece, bool remapped, bool brings);
    // Let the next piece wait for an event of the device.
    void wait_for(ggml_backend_event_t event);
    // Wait for what `layer` brings. Later pieces go on. The spans hold until the layer is computed again.
    void wait_for(size_t layer);
    std::span<const int32_t> ids(size_t layer) const { return {staging_[layer].ids, size_t(n_used_)}; }
    std::span<const float> weights(size_t layer) const;
    std::span<const float> input(size_t layer) const;
    // Wait until all pieces are computed.
    void finish();

  private:
    struct Staging {  // in pinned memory
        int32_t * ids;
        float * weights;
        float * input;
        int32_t * slots[2];  // a token sets a layer's slots at most twice
        int now = 0;  // the last one of these that was sent
        bool sent = false;
    };
    struct Moved {
        ggml_tensor * tensor;
        ggml_backend_buffer_t buffer;  // llama.cpp's
        void * data;
        void * place;
    };

    PieceRunner(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph, bool ahead);
    bool prepare();
    bool make_events();
    bool make_slots(ggml_backend_buffer_type_t memory);
    bool make_places(ggml_backend_buffer_type_t memory);
    bool make_staging();
    bool make_graph();
    void view(size_t piece, ggml_cgraph & graph, std::vector<ggml_tensor *> & nodes, bool remapped) const;

    Pieces pieces_;
    ggml_backend_t backend_;
    ggml_backend_dev_t device_;
    int32_t n_used_, n_expert_, n_embd_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr memory_;  // of the context's tensors
    ggml_backend_buffer_ptr places_;  // of the moved tensors
    ggml_backend_buffer_ptr pinned_;
    std::vector<Staging> staging_;  // [layer]
    std::vector<ggml_tensor *> sent_;  // [layer]: what set_slots() sends
    std::vector<ggml_tensor *> slots_;  // [layer], [n_expert_used, 1]: what the experts' mat-muls read
    // To run ahead; otherwise empty.
    const bool runs_ahead_;
    std::vector<ggml_backend_event_ptr> events_;  // [layer]
    std::vector<ggml_tensor *> remaps_;  // [layer]
    std::vector<ggml_tensor *> copies_;  // of inputs, before the first piece
    std::vector<Moved> moved_;
    ggml_context_ptr graph_context_;
    ggml_cgraph * graph_ = nullptr;  // all pieces: how often a node is used
    Wanted wanted_{};
    bool began_ = false;
    bool computing_ = false;
};

}  // namespace outrider
