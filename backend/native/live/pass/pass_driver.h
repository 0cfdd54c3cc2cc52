// Drives a pass: sees llama.cpp's nodes before they run, stops where a layer is routed, and takes its thread through
// the layer (layer_driver.h), or a token through its pieces (token_plan.h).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "live/ggml/thread_safety.h"
#include "live/graph/layer_check.h"
#include "live/memory/layer_window.h"
#include "live/pass/callback_switch.h"
#include "live/pass/layer_driver.h"
#include "live/pass/token_plan.h"

namespace outrider {

// One thread decodes; fields without GUARDED_BY belong to it. Others may stop the pass and look in.
class PassDriver {
  public:
    explicit PassDriver(const MoeGraph & graph) : graph_(graph), hook_(graph), reader_(graph), plan_(graph) {}

    // Between passes: replace the cache, or null, by what `make` makes of it, with `core`. There is none if that throws
    // or, std::runtime_error, if the host cannot compute its share.
    template <typename Make>
    void replace_cache(Core & core, Make && make, const ExpertFiles & files, Hybrid hybrid) EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        if (events_) {
            core.record(&events_.emplace());
        }
        set_cache(make(take_cache()), files, hybrid);
    }
    void drop_cache() EXCLUDES(mutex_);

    // The scheduler of the context of the following passes, and its callback with `self` for it; null: unknown.
    void use_scheduler(ggml_backend_sched_t scheduler, ggml_backend_sched_eval_callback callback, void * self)
        EXCLUDES(mutex_);

    // Around a pass, and between passes, as the functions of Patch.
    void begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences)
        EXCLUDES(mutex_);
    bool end_pass() EXCLUDES(mutex_);
    void request_began() EXCLUDES(mutex_);
    bool stock(const std::vector<std::vector<Expert>> & experts, const std::vector<std::vector<Expert>> & wanted)
        EXCLUDES(mutex_);
    void record(Recorder * recorder) EXCLUDES(mutex_);
    void force(const ForcedRouting * forced) EXCLUDES(mutex_);
    void record_events(bool wanted) EXCLUDES(mutex_);
    EventLog take_events() EXCLUDES(mutex_);
    void look_with(LayerCheck * check) { check_ = check; }
    void tell_layers(LayerWindow * window) { window_ = window; }
    // ggml's callback: before a node runs (true: stop after it), and at the stop (false: end the pass).
    bool ask(ggml_tensor * node) EXCLUDES(mutex_);
    bool computed(ggml_tensor * node) EXCLUDES(mutex_);

    // From any thread: return the result of `look` on the cache, while no pass changes it; without a cache, an empty
    // value.
    template <typename Look>
    auto of_cache(Look && look) const EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        using Found = std::invoke_result_t<Look, Cache &>;
        return layers_ ? look(layers_->cache()) : Found();
    }
    PatchTimes times() const EXCLUDES(mutex_);
    std::vector<uint64_t> stall_us() const EXCLUDES(mutex_);  // [layer]
    std::vector<uint64_t> wave_us() const EXCLUDES(mutex_);  // [layer]
    std::vector<HostSpeeds> host_speeds() const EXCLUDES(mutex_);
    void stop(bool wanted) { stopping_ = wanted; }
    int32_t n_behind() const { return std::max(n_routed_ - 1, 0); }  // finished layers of the pass
    const std::string & error() const { return error_; }

  private:
    std::unique_ptr<Cache> take_cache() REQUIRES(mutex_);
    void set_cache(std::unique_ptr<Cache> cache, const ExpertFiles & files, Hybrid hybrid) REQUIRES(mutex_);

    // pass_pieces.cc
    bool may_divide(Phase phase, size_t n_token) const REQUIRES(mutex_);
    bool fits_piece(Layer layer, ggml_backend_dev_t device) const REQUIRES(mutex_);
    bool compute_pieces() REQUIRES(mutex_);
    bool run_pieces() REQUIRES(mutex_);
    bool compute_routed(size_t number) REQUIRES(mutex_);
    Walk::Step await_on_device(Layer layer) REQUIRES(mutex_);
    bool may_skip_piece(size_t number) const REQUIRES(mutex_);

    bool may_pass_by(Layer layer) const REQUIRES(mutex_);
    bool may_pass_all_by() const REQUIRES(mutex_);
    bool passes_by(Layer layer, int32_t n_token) REQUIRES(mutex_);
    bool may_stop_late(Layer layer) const REQUIRES(mutex_);
    bool stops_for_input(const ggml_tensor * node) REQUIRES(mutex_);
    bool stops() REQUIRES(mutex_);
    bool stopped(ggml_tensor * node) REQUIRES(mutex_);
    bool routed(ggml_tensor * topk, Layer layer) REQUIRES(mutex_);
    bool run_layer() REQUIRES(mutex_);
    void work() REQUIRES(mutex_);
    bool abort_pass(const std::string & error) REQUIRES(mutex_);

    const MoeGraph & graph_;
    mutable Mutex mutex_;
    PassClock clock_ GUARDED_BY(mutex_);
    std::unique_ptr<LayerDriver> layers_ GUARDED_BY(mutex_);  // null: there is no cache
    CallbackSwitch callback_ GUARDED_BY(mutex_);
    std::optional<EventLog> events_ GUARDED_BY(mutex_);  // none: they are not wanted
    std::atomic<LayerCheck *> check_ = nullptr;
    std::atomic<LayerWindow *> window_ = nullptr;
    std::atomic<bool> stopping_ = false;
    std::atomic<int32_t> n_routed_ = 0;  // layers of the pass that were routed or passed by

    // The pass in progress.
    GraphHook hook_;
    RouterReader reader_;
    TokenPlan plan_;
    bool checks_ = false;  // at the stop, `check_` looks at the node
    bool late_stops_fail_ = false;  // the nodes came in another order than in the probe
    Layer input_wanted_ = none;  // a stop reads this layer's input
    std::string error_;
};

}  // namespace outrider
