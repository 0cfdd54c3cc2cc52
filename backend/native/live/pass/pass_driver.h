// Drives a pass: executes the walk through each layer (core/walk.h) while llama.cpp computes, and computes in waves
// where experts are missing.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/walk.h"
#include "live/compute/piece_runner.h"
#include "live/ggml/thread_safety.h"
#include "live/graph/forced_routing.h"
#include "live/graph/layer_check.h"
#include "live/memory/layer_window.h"
#include "live/pass/cache.h"
#include "live/pass/graph_hook.h"
#include "live/pass/host_partner.h"
#include "live/pass/recorder.h"
#include "live/pass/router_reader.h"

namespace outrider {

// Microseconds since the cache was made.
struct PatchTimes {
    uint64_t stall_us = 0;      // computation waited for copies
    uint64_t wave_us = 0;       // waves were computed, or the host's share was waited for
    uint64_t graph_us = 0;      // the part of wave_us in the device's kernels
    uint64_t n_graph = 0;       // graphs computed in waves
    uint64_t callback_us = 0;   // callbacks, with stalls and waves
    uint64_t predict_us = 0;    // the core saw a router's input: the prediction, and what it orders
    uint64_t delay_us = 0;      // the part of predict_us in which no copy was awaited
    uint64_t link_busy_us = 0;  // at least one copy into slots was in flight
    uint64_t link_idle_us = 0;  // none was, although the pass still needed an expert that was missing
    uint64_t host_us = 0;       // the host computed experts beside a device
    uint64_t host_wait_us = 0;  // the part of wave_us in which only the host computed
    uint64_t n_stop = 0;        // stops of llama.cpp's computation for the callback
    uint64_t n_unasked = 0;     // layers that needed no stop: all their experts stay resident
};

// One thread decodes; fields without GUARDED_BY belong to it. Others may stop the pass and, with the mutex, look in.
class PassDriver : private Driver {
  public:
    explicit PassDriver(const MoeGraph & graph) : graph_(graph), hook_(graph), reader_(graph) {}

    mutable Mutex mutex;

    // Between passes. set_cache() throws std::runtime_error if the host cannot compute its share.
    std::unique_ptr<Cache> take_cache() REQUIRES(mutex);
    void drop_cache() REQUIRES(mutex) { take_cache(); }
    void set_cache(std::unique_ptr<Cache> cache, const ExpertFiles & files, Hybrid hybrid) REQUIRES(mutex);

    // The scheduler of the context of the following passes, and its callback with `self` for it; null: unknown.
    void set_scheduler(ggml_backend_sched_t scheduler, ggml_backend_sched_eval_callback callback, void * self)
        REQUIRES(mutex);

    // Around a pass, as Patch::begin_pass() and end_pass().
    void begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences)
        EXCLUDES(mutex);
    // Between passes, as Patch::stock().
    bool stock(const std::vector<std::vector<Expert>> & experts, const std::vector<std::vector<Expert>> & wanted)
        REQUIRES(mutex);
    bool end_pass() EXCLUDES(mutex);
    // ggml's callback: before a node runs (true: stop after it), and at the stop (false: end the pass).
    bool ask(ggml_tensor * node) EXCLUDES(mutex);
    bool computed(ggml_tensor * node) EXCLUDES(mutex);

    Cache * cache() const REQUIRES(mutex) { return cache_.get(); }                    // or null
    const HostPartner * partner() const REQUIRES(mutex) { return partner_.get(); }    // or null
    PatchTimes times() const REQUIRES(mutex);
    const std::vector<uint64_t> & stall_us() const REQUIRES(mutex) { return stall_us_; }  // [layer]
    const std::vector<uint64_t> & wave_us() const REQUIRES(mutex) { return wave_us_; }    // [layer]
    const std::string & error() const { return error_; }

    Recorder * recorder GUARDED_BY(mutex) = nullptr;
    const ForcedRouting * forced GUARDED_BY(mutex) = nullptr;
    std::atomic<LayerCheck *> check = nullptr;
    std::atomic<LayerWindow *> window = nullptr;
    std::atomic<bool> stopping = false;
    std::atomic<int32_t> n_behind = 0;  // finished layers of the pass

  private:
    // pass_pieces.cc
    bool may_divide(Phase phase, size_t n_token) const REQUIRES(mutex);
    bool begins_pieces(ggml_tensor * node) EXCLUDES(mutex);
    void plan_pieces() REQUIRES(mutex);
    void forget_pieces() REQUIRES(mutex);
    bool compute_pieces() REQUIRES(mutex);
    bool run_pieces() REQUIRES(mutex);
    bool compute_routed(size_t number) REQUIRES(mutex);
    Walk::Step await_on_device(Layer layer) REQUIRES(mutex);
    void note_device_wait() REQUIRES(mutex);
    bool may_skip_piece(size_t number) const REQUIRES(mutex);

    bool may_pass_by(Layer layer) const REQUIRES(mutex);
    bool passes_by(Layer layer, int32_t n_token) REQUIRES(mutex);
    void choose_callback(size_t n_token) REQUIRES(mutex);
    bool is_own_device(Layer layer) const;
    bool may_stop_late(Layer layer) const REQUIRES(mutex);
    bool stops_for_input(const ggml_tensor * node) REQUIRES(mutex);
    void note_idle() REQUIRES(mutex);
    bool stops() REQUIRES(mutex);
    bool routed(ggml_tensor * topk, Layer layer) REQUIRES(mutex);
    bool run_layer() REQUIRES(mutex);
    void read_router(const ggml_tensor * topk, Layer layer) REQUIRES(mutex);
    std::span<const float> weights_for_core() const REQUIRES(mutex);
    void show_router(Layer layer, bool delays) REQUIRES(mutex);
    std::span<const int32_t> slots_of_choice() REQUIRES(mutex);
    void remap() REQUIRES(mutex);
    void sort_pairs();
    void keep_inputs(const ggml_tensor * node) REQUIRES(mutex);
    void plan_waves() REQUIRES(mutex);
    bool run_waves() REQUIRES(mutex);
    void compute_wave() REQUIRES(mutex);
    void run_wave(WaveRunner & waves, std::span<const Compute> computing, Part part, bool add);
    void wait() REQUIRES(mutex);
    void finish_layer() REQUIRES(mutex);
    bool abort_pass(const std::string & error) REQUIRES(mutex);
    void tell_speeds() REQUIRES(mutex);
    CopyEnd end_of(const Arrival & arrival);

    std::optional<CopyEnd> submit(const Copy & copy, bool is_lost) override REQUIRES(mutex);
    bool cancel(Ticket ticket) override REQUIRES(mutex) { return cache_->pool->cancel(ticket); }
    std::optional<CopyEnd> take() override REQUIRES(mutex);
    bool copies() const override REQUIRES(mutex) { return cache_->pool->n_open() > 0; }
    void gave_up() override;
    void compute_on_host(const Compute & compute) override REQUIRES(mutex) { partner_->plan(compute); }
    bool withdraw(Expert expert) override REQUIRES(mutex) { return partner_->withdraw(expert); }
    std::optional<Compute> take_from_host() override REQUIRES(mutex);
    std::optional<double> caught_up_us() override REQUIRES(mutex);

    const MoeGraph & graph_;
    std::unique_ptr<Cache> cache_ GUARDED_BY(mutex);
    std::unique_ptr<HostPartner> partner_ GUARDED_BY(mutex);
    std::optional<Walk> walk_ GUARDED_BY(mutex);  // while there is a cache
    PatchTimes times_ GUARDED_BY(mutex);
    std::vector<uint64_t> stall_us_ GUARDED_BY(mutex), wave_us_ GUARDED_BY(mutex);  // [layer]

    ggml_backend_sched_t scheduler_ GUARDED_BY(mutex) = nullptr;  // null: unknown
    ggml_backend_sched_eval_callback callback_ GUARDED_BY(mutex) = nullptr;
    void * self_ GUARDED_BY(mutex) = nullptr;

    // The pass in progress.
    GraphHook hook_;
    RouterReader reader_;
    bool checks_ = false;  // at the stop, `check` looks at the node
    bool late_stops_fail_ = false;  // the nodes came in another order than in the probe
    Layer input_wanted_ = none;     // a stop reads this layer's input
    Layer n_routed_ = 0;            // layers of the pass that were routed or passed by
    bool is_unasked_ = false;       // llama.cpp computes the pass without the callback
    bool was_asked_ = false;        // a pass was computed with it since set_cache()
    std::string error_;
    std::string copy_error_;        // of the last copy that failed
    // The layer in progress.
    uint64_t began_us_ = 0, busy_us_ = 0;      // the pass began; link_busy_us then
    uint64_t idle_us_ = 0;                     // of the pass so far, as in PatchTimes
    uint64_t waves_began_us_ = 0;
    std::vector<Slot> slot_of_;                // [expert], for slots_of_choice()
    std::vector<int32_t> slots_;               // of slots_of_choice()
    std::vector<std::vector<Pair>> pairs_of_;  // [expert], for waves
    std::vector<Pair> wave_;
    // Tokens in pieces. `pieces_` is for the graph whose first node is `planned_` and bears `plan_number_`; null: that
    // graph cannot be computed so.
    enum class Division : uint8_t { off, undecided, learning, ordinary, planned, starting };
    Division division_ = Division::off;
    std::vector<ggml_tensor *> seen_;  // nodes of a token, while learning
    const ggml_tensor * planned_ = nullptr;
    uint64_t plan_number_ = 0;
    int n_plan_in_vain_ = 0;  // the next token had another graph, in a row
    std::unique_ptr<PieceRunner> pieces_ GUARDED_BY(mutex);
    ggml_op first_op_ = GGML_OP_NONE;  // of the first node of the first piece
    Layer device_waits_ = none;  // the device waits for copies of this layer
    uint64_t device_waits_since_us_ = 0;
    uint64_t routed_us_ = 0;  // when the layer was routed
};

}  // namespace outrider
