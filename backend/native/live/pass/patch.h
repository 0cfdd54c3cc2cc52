// llama.cpp's MoE graph, patched: the experts come from a cache that a core manages. This is the facade: it learns the
// model, makes the cache, and answers questions. graph_hook.h changes the graph, pass_driver.h drives a pass,
// layer_driver.h a layer, token_plan.h plans a token in pieces, router_reader.h reads the routers, host_partner.h has
// the host's share, pass_clock.h the costs, link_probe.h measures copies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/event_log.h"
#include "live/pass/pass_driver.h"

namespace outrider {

class Patch {
  public:
    // `buffers`: what the model was loaded with; `files`: where its experts are. Both must outlive the patch.
    Patch(const ExpertFiles & files, ExpertBuffers & buffers) : files_(files), buffers_(buffers) {}

    // For llama_context_params.cb_eval and cb_eval_user_data.
    static bool callback(ggml_tensor * node, bool ask, void * self);

    // Learn the model. After begin_probe() no pass is computed; decode one token and then two in a context of their
    // own. If a device computes, call find_devices() in between and decode one token in another context first.
    // end_probe() returns why the model cannot be cached, or "".
    void begin_probe();
    void find_devices() { probe_->find_devices(); }
    std::string end_probe();

    // Rebuild the cache between passes: empty, or with the present experts that have room, those that the eviction
    // would keep longest. REQUIRES: a successful probe. Throws std::invalid_argument, and changes
    // nothing, if the layout or the composition does not fit the model. Throws std::runtime_error if memory is short;
    // then there is no cache until a call succeeds.
    void configure(const Layout & layout, const Composition & composition, const PatchOptions & options,
                   bool keeps_residents = false);
    // Parts that know the future (oracle, belady) use it from the next configure() on.
    void set_future(std::shared_ptr<const Future> future) { future_ = std::move(future); }
    // MoEpic's configurator learns from it from the next configure() on; may be null.
    void set_statistics(std::shared_ptr<MoepicStatistics> statistics) { statistics_ = std::move(statistics); }
    // Drop the cache and restore the model's tensors. Call before the model is freed. May be called twice.
    void close();

    // The scheduler of the context that computes the passes from now on; null: unknown. Where it is known, a token for
    // which no layer needs a stop is computed without the callback. Call with null before that context is freed.
    void use_scheduler(ggml_backend_sched_t scheduler);

    void request_began() { driver_.request_began(); }
    // Between passes. Throws std::invalid_argument for settings that make no sense.
    void tune(const Tuning & tuning);

    // Between passes: begin to fetch these experts of each layer, [layer], as long as it has free slots. `wanted`,
    // [layer] or empty: experts for which others leave (Stocked). Returns whether copies are in flight.
    bool stock(const std::vector<std::vector<Expert>> & experts, const std::vector<std::vector<Expert>> & wanted = {}) {
        return driver_.stock(experts, wanted);
    }

    // Around every pass (one llama_decode of at most max_token tokens). `tokens`: ids, or empty if unknown.
    // `sequences`: as in PassBegan. end_pass() returns false if the pass was stopped or failed; its results are void
    // then, and error() says why it failed.
    void begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences = {});
    bool end_pass();
    const std::string & error() const { return probe_error_.empty() ? driver_.error() : probe_error_; }
    // From any thread: end the pass in progress, or the next one, with void results.
    void stop() { driver_.stop(true); }
    // Let passes run again. Forgets a stop that met no pass.
    void resume() { driver_.stop(false); }

    // From the next pass on, report routings to `recorder`; null: stop. It must outlive its use.
    void record(Recorder * recorder) { driver_.record(recorder); }
    // From the next pass on, `forced` replaces the routers' choices; null: stop. It must outlive its use and know of
    // every pass before the patch does.
    void force(const ForcedRouting * forced) { driver_.force(forced); }
    // From the next pass on, `check` looks at the output of every layer; null: stop. It must outlive its use.
    void check(LayerCheck * check) { driver_.look_with(check); }
    // From the next pass on, tell `window` of every layer; null: stop. It must outlive its use.
    void window(LayerWindow * window) { driver_.tell_layers(window); }
    // Whether to keep every event of the core. Call before configure() or before the first pass after it: a log is
    // replayed by a new core.
    void record_events(bool wanted) { driver_.record_events(wanted); }
    // Return the log, and begin an empty one.
    EventLog take_events() { return driver_.take_events(); }
    // REQUIRES: configured, and no pass since. See link_probe.h; throws std::runtime_error.
    double measure_link(double seconds, bool by_chunk);
    // Between passes: compare a resident expert, the `number`-th modulo their count, with its file. Return its layer
    // (the model's number) and itself if memory and file differ. Throws std::runtime_error if the file cannot be read.
    std::optional<std::pair<int, Expert>> find_wrong_slot(uint64_t number) const;

    // The model. Layers are numbered as in the model's tensors, in order; see MoeGraph.
    const std::vector<int> & layers() const { return graph_.numbers; }
    const Shape & shape() const { return graph_.shape; }
    int32_t n_embd() const { return graph_.n_embd; }
    const std::vector<std::vector<float>> & routers() const { return graph_.routers; }
    const std::vector<RouterBias> & router_biases() const { return graph_.router_biases; }
    const std::vector<std::vector<Expert>> & token_experts() const { return graph_.token_experts; }

    // From any thread. Without a cache: empty, 0 or false.
    Layout layout() const;
    bool reads_by_ring() const;  // the system's queue reads, not threads
    uint64_t slab_bytes() const;
    uint64_t kept_bytes() const;  // of experts that were kept by configure()
    uint64_t host_bytes() const;  // of the host store
    bool host_lacks_pinned() const;  // the store is in ordinary memory: the driver had no more pinned memory
    uint64_t host_held_bytes() const;  // the part of host_bytes() that has pages
    std::vector<int32_t> n_host_slot() const;  // [layer]; empty without a host store
    std::vector<LayerCounts> counts() const;
    std::vector<HostCounts> host_counts() const;
    std::vector<uint64_t> stall_us_by_layer() const { return driver_.stall_us(); }
    std::vector<uint64_t> wave_us_by_layer() const { return driver_.wave_us(); }
    std::vector<uint8_t> snapshot() const;
    PatchTimes times() const { return driver_.times(); }
    // [layer], as last told to the core; empty if the host has no share
    std::vector<HostSpeeds> host_speeds() const { return driver_.host_speeds(); }
    // Return the share of the layers of the pass that are finished.
    double progress() const { return graph_.shape.n_layer > 0 ? double(driver_.n_behind()) / graph_.shape.n_layer : 0; }

  private:
    const ExpertFiles & files_;
    ExpertBuffers & buffers_;
    std::unique_ptr<Probe> probe_;  // while learning
    std::string probe_error_;
    MoeGraph graph_;  // learned
    std::shared_ptr<const Future> future_;
    std::shared_ptr<MoepicStatistics> statistics_;
    PassDriver driver_{graph_};
};

}  // namespace outrider
