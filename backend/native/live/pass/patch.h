// llama.cpp's graph, patched: the eval callback that reads the router's choice, has the core
// decide, and lets llama.cpp compute on slots (remap) or computes in waves itself.
//
// patch_setup.cc: learning a model, making a cache, looking in; patch.cc: a pass; patch_router.cc:
// what a pass reads of the routers; patch_link.cc: how fast experts come; patch_host.cc: the host's share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/core.h"
#include "core/event_log.h"
#include "live/compute/device_work.h"
#include "live/compute/host_speeds.h"
#include "live/compute/host_work.h"
#include "live/graph/forced_routing.h"
#include "live/graph/moe_graph.h"
#include "live/io/link_limit.h"
#include "live/io/memory_filler.h"
#include "live/io/transfers.h"
#include "live/memory/host_store.h"
#include "live/memory/mapped_experts.h"
#include "live/pass/recorder.h"

namespace outrider {

struct PatchOptions {
    int n_thread = 1;           // for computing
    int n_transfer_thread = 2;  // 0: a copy ends before anything else happens, in the decoding thread
    int max_token = 512;        // of one pass
    // For experiments: what all transfer threads together bring at most; 0: as much as they can.
    double link_bytes_per_s = 0;
    // Copies whose bytes lie together are read at once until they are so many.
    uint64_t joined_bytes = uint64_t(1) << 20;
    // Where the system has a queue for reads, and experts lie in whole blocks: leave them to it.
    bool ring = true;
    // Slots hold experts as the CPU backend computes fastest, where it can (repack.h).
    bool repack = false;
    // Of the host's memory that keeps experts between the file and devices; 0: none. Without a device: none.
    uint64_t host_bytes = 0;
    // As link_bytes_per_s, which is then what comes into slots: what the file brings.
    double file_bytes_per_s = 0;
};

// Times since the cache was made, in microseconds.
struct PatchTimes {
    uint64_t stall_us = 0;      // computation waited for copies
    uint64_t wave_us = 0;       // computing in waves, or waiting for the host's share of them
    uint64_t graph_us = 0;      // of these, in the device's kernels; the rest is our own
    uint64_t n_graph = 0;       // graphs that were computed in waves
    uint64_t callback_us = 0;   // all of the callback, the two above included
    uint64_t link_busy_us = 0;  // at least one copy into slots was under way
    uint64_t file_busy_us = 0;  // at least one copy from the file was
    uint64_t host_us = 0;       // the host computed experts beside a device
    uint64_t host_wait_us = 0;  // of wave_us, when there was nothing to do but to wait for it
    uint64_t n_stop = 0;        // times that computing stopped for the callback
    uint64_t n_unasked = 0;     // layers that needed none: all their experts are here to stay
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
    // Where a device computes, find_devices() comes in between, and one token in another context.
    void begin_probe();
    void find_devices() { probe_->find_devices(); }
    std::string end_probe();

    // After a successful probe. Slots and a core for every MoE layer; may be called again between
    // passes, with nothing resident afterwards. Throws std::invalid_argument where the layout or
    // the composition does not fit the model, and then nothing has changed; std::runtime_error when
    // memory is short, and then there is no cache until it has succeeded.
    void configure(const Layout & layout, const Composition & composition, const PatchOptions & options);
    // For parts that know what comes (oracle, belady): from the next configure() on.
    void set_future(std::shared_ptr<const Future> future) { future_ = std::move(future); }
    // What MoEpic's configurator is to learn from, likewise; null: nothing.
    void set_statistics(std::shared_ptr<MoepicStatistics> statistics) { statistics_ = std::move(statistics); }

    // Gives the model's tensors back what they had. To be called before the model is freed, since
    // whoever still refers to the patch would otherwise do so later. Twice is fine.
    void close();

    // A new conversation begins.
    void request_began();
    // Between passes; throws std::invalid_argument where it makes no sense.
    void tune(const Tuning & tuning);

    // Around every pass (one llama_decode of at most max_token tokens). `tokens`: their ids, or
    // empty where they are not known. end_pass() returns false when the pass was stopped or failed;
    // then its results are void, and error() is not empty if it failed.
    void begin_pass(Phase phase, const std::vector<int32_t> & tokens);
    bool end_pass();
    const std::string & error() const { return error_; }
    // From any thread: the pass in progress, or the next, ends soon and void.
    void stop() { stopping_ = true; }
    // Passes run again; a stop that met no pass is forgotten.
    void resume() { stopping_ = false; }

    // From the next pass on, what is routed is told to `recorder`, which must outlive that; null:
    // no more.
    void record(Recorder * recorder);
    // From the next pass on, its routing takes the place of the routers'; it must outlive that, and
    // be told of every pass before the patch is. Null: no more.
    void force(const ForcedRouting * forced);
    // Whether every event of the core is kept. To be said before configure() or the first pass
    // after it: a log is replayed by a core that is as new.
    void record_events(bool wanted);
    // What was kept; nothing of it remains here.
    EventLog take_events();

    // How many bytes a second the copies bring while nothing is computed, in the sizes and as many at a
    // time as a layer's misses would be: of experts drawn by chance, whole or matrix by matrix. Takes
    // about `seconds`. REQUIRES: configured, and no pass since; throws std::runtime_error otherwise,
    // and when a copy fails.
    double measure_link(double seconds, bool by_chunk);

    // MoE layers in the model's own numbering, in order.
    const std::vector<int> & layers() const { return graph_.numbers; }
    const Shape & shape() const { return graph_.shape; }
    int32_t n_embd() const { return graph_.n_embd; }
    // [layer][n_expert * n_embd], see MoeGraph.
    const std::vector<std::vector<float>> & routers() const { return graph_.routers; }
    const Layout & layout() const { return layout_; }
    // Whether the kernel's own queue reads, not threads.
    bool reads_by_ring() const { return pool_ && pool_->has_ring(); }
    uint64_t slab_bytes() const { return slab_ ? slab_->bytes() : 0; }
    // The host's memory that keeps experts for devices, null: none; and how many of each layer.
    const HostStore * host() const { return host_.get(); }
    uint64_t host_held_bytes() const;  // of it, in memory by now
    const std::vector<int32_t> & n_host_slot() const { return n_host_slot_; }
    // From any thread.
    std::vector<LayerCounts> counts() const;
    std::vector<HostCounts> host_counts() const;
    std::vector<uint64_t> stall_us_by_layer() const;
    std::vector<uint64_t> wave_us_by_layer() const;
    std::vector<uint8_t> snapshot() const;
    // Share of the layers of the pass in progress that are behind it.
    double progress() const { return graph_.shape.n_layer > 0 ? double(n_behind_) / graph_.shape.n_layer : 0; }
    PatchTimes times() const;
    // [layer], as the core was told them last; empty where the host has no share.
    std::vector<HostSpeeds> host_speeds() const;

  private:
    struct Undo {  // what a node was before this pass changed it
        ggml_tensor * node;
        ggml_op op;
        ggml_tensor * ids;
    };
    enum class Mode { off, probing, remap, waves, aborted };

    void drop_cache();
    std::unique_ptr<Transfers> make_pool() const;
    std::vector<int32_t> divide_host(uint64_t n_byte) const;
    void make_device_work();
    DeviceWork & work() { return *work_of_[size_t(layer_)]; }
    bool ask(ggml_tensor * node);
    bool passes_by(Layer layer, int32_t n_token);
    bool route(ggml_tensor * topk, Layer layer);
    bool may_stop_late(Layer layer) const;
    void note_router(ggml_tensor * node);
    bool skip(ggml_tensor * node);
    bool computed(ggml_tensor * node);
    bool routed(ggml_tensor * topk, Layer layer);
    void read_router(const ggml_tensor * topk, Layer layer);
    const ggml_tensor * readable_probabilities(Layer layer) const;
    const ggml_tensor * readable_input(Layer layer) const;
    void take_ids(const ggml_tensor * topk);
    void take_weights(const ggml_tensor * probabilities);
    void round_to_half(std::vector<float> & values);
    void see_gate(Layer layer);
    void remap();
    void sort_pairs();
    void keep_inputs(const ggml_tensor * node);
    bool run_waves();
    void run_wave(Part part);
    void obey();
    void submit(Copy copy);
    void collect_arrivals();
    void tell(const Arrival & arrival);
    void wait(Layer layer);
    // Of the host's share (patch_host.cc).
    void make_host_work(Hybrid hybrid);
    KernelSpeed measure_device(DeviceWork & work, Layer layer);
    KernelSpeed measure_host(Layer layer);
    void tell_speeds();
    void begin_host();
    void start_host();
    void balance_host();
    bool withdraw(const Withdraw & command);
    void collect_host();
    void note_device_done();
    void finish_layer();
    void undo_changes();
    bool abort_pass(const std::string & error);

    const ExpertFiles & files_;
    ExpertBuffers & buffers_;

    std::unique_ptr<Probe> probe_;  // while learning
    MoeGraph graph_;                // learned

    // Configured.
    std::shared_ptr<const Future> future_;
    std::shared_ptr<MoepicStatistics> statistics_;
    Layout layout_;
    PatchOptions options_;
    std::vector<int32_t> n_host_slot_;  // [layer], or empty
    std::unique_ptr<HostStore> host_;
    std::unique_ptr<Slab> slab_;
    std::unique_ptr<LinkLimit> limit_, file_limit_;
    std::unique_ptr<Transfers> pool_;
    std::unique_ptr<MemoryFiller> filler_;
    std::unique_ptr<Core> core_;
    std::vector<std::unique_ptr<DeviceWork>> works_;  // one for every device
    std::vector<DeviceWork *> work_of_;               // [layer]
    std::unique_ptr<MappedExperts> mapped_;           // whom the host reads
    std::unique_ptr<HostWork> host_work_;             // where some layer's experts may be the host's
    std::vector<HostSpeeds> host_speeds_;             // [layer]
    SpeedMeter speed_meter_;
    uint64_t last_bytes_ = 0, last_busy_us_ = 0;      // of the link, when it was looked at last
    Recorder * recorder_ = nullptr;
    const ForcedRouting * forced_ = nullptr;
    bool keeps_events_ = false;
    EventLog events_;

    // The pass in progress.
    Mode mode_ = Mode::off;
    Layer layer_ = none;
    ggml_tensor * choice_ = nullptr;   // of the router whose layer computing will stop for
    Layer choice_layer_ = none;
    size_t n_to_stop_ = 0;                   // nodes until then, the one asked for last not counted
    bool stops_late_ = false;                // not at the choice but just before the experts
    const ggml_tensor * final_weights_ = nullptr;  // of the chosen experts, if it does
    bool late_stops_fail_ = false;           // nodes came in another order than they were learned in
    int32_t n_token_ = 0;
    std::vector<Expert> ids_;            // [n_token][n_expert_used]
    std::vector<float> weights_;         // likewise, or empty
    std::vector<float> probabilities_;   // [n_token][n_expert], or empty
    Commands commands_;                  // of the core, not yet obeyed
    bool gave_up_ = false;
    std::vector<Compute> ready_;         // said by the core, not yet computed
    std::vector<Compute> computing_;     // being computed
    std::vector<Pair> host_pairs_;       // computed by the host, and not yet the device's
    std::vector<float> host_rows_;       // theirs
    uint64_t routed_us_ = 0;             // when the layer was
    uint64_t waves_began_us_ = 0;        // of the layer
    int32_t n_unmeasured_ = 0;           // layers since the device's side was measured
    uint64_t handed_us_ = 0;             // of the layer, to give the host its rows and to take them
    std::vector<Compute> for_host_;      // said by the core, not yet begun
    std::vector<Slot> slot_of_;          // [expert], while remapping
    std::vector<int32_t> slots_;         // [n_token][n_expert_used], likewise
    std::vector<std::vector<Pair>> pairs_of_;  // [expert], for waves
    std::vector<Pair> wave_;
    size_t n_needed_ = 0;
    Segment segment_;
    size_t n_seen_ = 0;                  // nodes since the segment's first
    std::vector<Undo> undo_;
    std::vector<ggml_tensor *> logits_;  // [layer], of this pass
    std::vector<ggml_tensor *> probabilities_of_;  // [layer], of this pass
    std::vector<float> gate_input_;      // [n_token][n_embd]
    std::vector<ggml_fp16_t> half_;
    std::vector<uint8_t> sorted_;        // what a device has of a choice
    std::string error_;
    std::string copy_error_;  // of the last copy that failed
    std::atomic<bool> stopping_ = false;
    std::atomic<int32_t> n_behind_ = 0;  // layers of the pass

    mutable std::mutex mutex_;  // guards core_, the times and events_ against readers
    std::vector<uint64_t> stall_us_, wave_us_;  // [layer]
    PatchTimes times_;
};

}  // namespace outrider
