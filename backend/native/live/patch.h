// llama.cpp's graph, patched: the eval callback that reads the router's choice, has the core
// decide, and lets llama.cpp compute on slots (remap) or computes in waves itself.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../core/core.h"
#include "../core/predict/next_router.h"
#include "moe_graph.h"
#include "transfer.h"
#include "wave.h"

namespace outrider {

struct PatchOptions {
    OrderedOptions schedule;
    bool next_router = false;  // predict with the next layer's router; otherwise reactive
    double min_precision = 0;  // see CoreOptions
    int n_thread = 1;          // for computing
    int n_transfer_thread = 2;
    int max_token = 512;       // of one pass
};

// Times since the patch was made, in microseconds.
struct PatchTimes {
    uint64_t stall_us = 0;     // computation waited for copies
    uint64_t wave_us = 0;      // computing in waves
    uint64_t callback_us = 0;  // all of the callback, the two above included
};

class Patch {
  public:
    // `buffers`: what the model was loaded with; `files`: where its experts are. Both outlive the
    // patch.
    Patch(const ExpertFiles & files, ExpertBuffers & buffers);
    ~Patch();

    // For llama_context_params.cb_eval and cb_eval_user_data.
    static bool callback(ggml_tensor * node, bool ask, void * self);

    // Learning: after begin_probe() nothing of a pass is computed; decode one token and then two
    // in a context of their own. end_probe() returns why the model cannot be cached, or "".
    void begin_probe();
    std::string end_probe();

    // After a successful probe. Slots for every MoE layer; may be called again between passes,
    // with nothing resident afterwards. Throws std::runtime_error when memory is short, and then
    // there is no cache until it has succeeded.
    void configure(const std::vector<int32_t> & n_slot, const PatchOptions & options);

    // Gives the model's tensors back what they had. To be called before the model is freed, since
    // whoever still refers to the patch would otherwise do so later. Twice is fine.
    void close();

    // Around every pass (one llama_decode of at most max_token tokens). end_pass() returns false
    // when the pass was stopped or failed; then its results are void, and error() is not empty
    // if it failed.
    void begin_pass(Phase phase);
    bool end_pass();
    const std::string & error() const { return error_; }
    // From any thread: the pass in progress, or the next, ends soon and void.
    void stop() { stopping_ = true; }
    // Passes run again; a stop that met no pass is forgotten.
    void resume() { stopping_ = false; }

    // MoE layers in the model's own numbering, in order.
    const std::vector<int> & layers() const { return graph_.numbers; }
    const Shape & shape() const { return graph_.shape; }
    uint64_t slab_bytes() const { return slab_ ? slab_->bytes() : 0; }
    // From any thread.
    std::vector<LayerCounts> counts() const;
    std::vector<uint64_t> stall_us_by_layer() const;
    std::vector<uint8_t> snapshot() const;
    PatchTimes times() const;

  private:
    struct Undo {  // what a node was before this pass changed it
        ggml_tensor * node;
        ggml_op op;
        ggml_tensor * ids;
    };
    enum class Mode { off, probing, remap, waves, aborted };

    void drop_cache();
    bool ask(ggml_tensor * node);
    bool skip(ggml_tensor * node);
    bool computed(ggml_tensor * node);
    bool routed(ggml_tensor * topk, Layer layer);
    void read_ids(const ggml_tensor * topk);
    void see_gate(Layer layer);
    void remap();
    bool run_waves();
    void obey(Commands commands);
    void collect_arrivals();
    void take(const Arrival & arrival);
    void wait_for_arrival(Layer layer);
    void finish_layer();
    void undo_changes();
    bool abort_pass(const std::string & error);

    const ExpertFiles & files_;
    ExpertBuffers & buffers_;

    std::unique_ptr<Probe> probe_;  // while learning
    MoeGraph graph_;                // learned

    // Configured.
    PatchOptions options_;
    std::unique_ptr<Slab> slab_;
    std::unique_ptr<TransferPool> pool_;
    std::unique_ptr<Core> core_;
    std::unique_ptr<WaveRunner> waves_;
    ggml_backend_buffer_t ids_buffer_ = nullptr;
    ggml_context * ids_context_ = nullptr;
    ggml_tensor * slot_ids_ = nullptr;  // [n_expert_used, n_token] for the layer in progress

    // The pass in progress.
    Mode mode_ = Mode::off;
    Layer layer_ = none;
    int32_t n_token_ = 0;
    std::vector<Expert> ids_;            // [n_token][n_expert_used]
    std::vector<Compute> ready_;         // said by the core, not yet computed
    std::vector<Compute> computing_;     // being computed by llama.cpp (remap)
    std::vector<std::vector<Pair>> pairs_of_;  // [expert], for waves
    size_t n_needed_ = 0;
    Segment segment_;
    size_t n_seen_ = 0;                  // nodes since the segment's first
    std::vector<Undo> undo_;
    std::vector<ggml_tensor *> logits_;  // [layer], of this pass
    std::vector<float> gate_input_;
    std::string error_;
    std::string copy_error_;  // of the last copy that failed
    std::atomic<bool> stopping_ = false;

    mutable std::mutex mutex_;  // guards core_, stall_us_ and times_ against readers
    std::vector<uint64_t> stall_us_;
    PatchTimes times_;
};

}  // namespace outrider
