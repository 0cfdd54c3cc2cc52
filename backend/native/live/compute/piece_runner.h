// Computes the pieces of a token's graph on the scheduler's backend, and brings the routers' choices to the host. The
// host sends its data from pinned memory on the same stream, so that it waits once for each choice and for nothing
// else.
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
    // Returns null if the device lacks memory.
    static std::unique_ptr<PieceRunner> make(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph);
    ~PieceRunner() { finish(); }
    PieceRunner(const PieceRunner &) = delete;
    PieceRunner & operator=(const PieceRunner &) = delete;

    const ggml_tensor * first() const { return pieces_.nodes.front(); }
    const std::vector<RoutedNodes> & layers() const { return pieces_.layers; }

    // The values of the routers that come to the host, beside the choice.
    struct Wanted {
        bool weights;
        bool input;
    };
    // Begin a token. Until end(), the graph is changed.
    void begin(Wanted wanted);
    void end();
    // For piece `layer` + 1: choice k of layers()[layer] is in slots[k]. REQUIRES: finish() since the token began.
    void set_slots(size_t layer, std::span<const int32_t> slots);
    // Begin to compute a piece after those before, and to bring its results. `remapped`: by the slots of set_slots();
    // otherwise llama.cpp's own nodes are right. With `brings`, what it ends with may be read.
    void compute(size_t piece, bool remapped, bool brings);
    // Let the next piece wait for an event of the device.
    void wait_for(ggml_backend_event_t event);
    // Wait until all pieces are computed.
    void finish();
    // The results of a piece, after finish(). The spans hold until the layer is computed again.
    std::span<const int32_t> ids(size_t layer) const { return {staging_[layer].ids, n_used(layer)}; }
    std::span<const float> weights(size_t layer) const;
    std::span<const float> input(size_t layer) const;

  private:
    struct Staging {  // in pinned memory
        int32_t * ids;
        float * weights;
        float * input;
        int32_t * slots;
        bool sent = false;  // `slots` were
    };

    PieceRunner(const Pieces & pieces, ggml_backend_t backend, const MoeGraph & graph);
    size_t n_used(size_t layer) const { return size_t(pieces_.layers[layer].ids->ne[0]); }
    bool make_slots();
    bool make_staging();
    bool make_graph();
    void view(size_t piece, ggml_cgraph & graph);

    Pieces pieces_;
    ggml_backend_t backend_;
    ggml_backend_dev_t device_;
    int32_t n_used_, n_embd_;  // n_used_: the most of all layers
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr memory_;  // of the context's tensors
    ggml_backend_buffer_ptr pinned_;
    std::vector<Staging> staging_;  // [layer]
    std::vector<ggml_tensor *> slots_;  // [layer], [Shape::used, 1]: what the experts' mat-muls read
    ggml_context_ptr graph_context_;
    ggml_cgraph * graph_ = nullptr;  // all pieces: how often a node is used
    Wanted wanted_{};
    bool computing_ = false;
};

}  // namespace outrider
