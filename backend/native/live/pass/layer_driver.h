// Executes the walk through the layers (core/walk.h) with a cache: obeys the core, lets llama.cpp compute on slots, and
// computes in waves, on the device and on the host, where experts are missing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/walk.h"
#include "live/pass/cache.h"
#include "live/pass/graph_hook.h"
#include "live/pass/host_partner.h"
#include "live/pass/pass_clock.h"
#include "live/pass/router_reader.h"

namespace outrider {

// Belongs to the decoding thread. Others may look at the cache with the lock of PassDriver, which work() does not need.
class LayerDriver : private Driver {
  public:
    // The references outlive this. Throws std::runtime_error if the host cannot compute its share.
    LayerDriver(const MoeGraph & graph, const ExpertFiles & files, std::unique_ptr<Cache> cache, Hybrid hybrid,
                GraphHook & hook, RouterReader & reader, PassClock & clock);
    // Return the cache. REQUIRES: this is destroyed next.
    std::unique_ptr<Cache> take_cache();

    Cache & cache() const { return *cache_; }
    Core & core() const { return *cache_->core; }
    Walk & walk() { return walk_; }
    const HostPartner * partner() const { return partner_.get(); }  // or null

    void begin_pass(const PassBegan & event);
    // The layer's choice was read. Then tell the core and the recorder the other router values that they want.
    // `delays`: the device waits for it.
    void route(Layer layer, Walk::Obey when = Walk::Obey::each);
    void show_router(Layer layer, bool delays);
    // Return the slots of the layer's choice, [n_token][Shape::used]. REQUIRES: Walk::Step::slots.
    std::span<const int32_t> slots_of_choice();

    // Go on with the layer. Return whether to work(); otherwise llama.cpp computes, or the layer is over.
    bool next();
    // Copy what a node of the segment reads from outside, for the device and for the host.
    void keep_inputs(const ggml_tensor * node);
    // llama.cpp has reached the layer's experts, and has skipped them.
    void begin_waves();

    struct Work {
        uint64_t us = 0;
        bool host_works = false;  // while this waits
        std::optional<Arrival> arrival;
    };
    // Compute a wave, or wait for a copy or for the host. Then tell the core.
    Work work();
    void worked(const Work & work);
    // The layer that llama.cpp computed on slots is over: its experts may be evicted.
    void finish();
    void abort();

  private:
    void remap();
    void plan_waves();
    void run_wave(WaveRunner & waves, Part part, bool add);
    void tell_speeds();
    CopyEnd end_of(const Arrival & arrival);

    std::optional<CopyEnd> submit(const Copy & copy, bool is_lost) override;
    void submitted() override { cache_->pool->begin(); }
    bool cancel(Ticket ticket) override { return cache_->pool->cancel(ticket); }
    std::optional<CopyEnd> take() override;
    bool copies() const override { return cache_->pool->n_open() > 0; }
    void gave_up() override;
    void compute_on_host(const Compute & compute) override { partner_->plan(compute); }
    bool withdraw(Expert expert) override { return partner_->withdraw(expert); }
    std::optional<Compute> take_from_host() override;
    std::optional<double> caught_up_us() override;

    const MoeGraph & graph_;
    GraphHook & hook_;
    RouterReader & reader_;
    PassClock & clock_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<HostPartner> partner_;  // or null; its thread uses the cache's pool
    Walk walk_;
    std::string copy_error_;  // of the last copy that failed
    std::vector<Slot> slot_of_;  // [expert], for slots_of_choice()
    std::vector<int32_t> slots_;  // of slots_of_choice()
    std::vector<std::vector<Pair>> pairs_of_;  // [expert], for waves
    std::vector<Pair> wave_;
    uint64_t waves_began_us_ = 0;
};

}  // namespace outrider
