// The prefetcher of ProMoE (section 5, Algorithms 1 and 2): predicted experts are queued low and
// touch what is resident; at the gate the layer's low copies are dropped, the needed experts are
// ordered by how much of them has arrived, the rest is queued high, and computation follows that
// order. Without forecasts it is a reactive cache.
//
// A layer of a prompt may need more experts than it has slots. It then passes most of them through a few
// slots, in the order of the file, and the others keep what is most worth keeping: what decoding will
// want is here when the prompt ends, not what was read last (`n_stream`).
//
// Where the layout has a stage (LayerLayout::stage), such a layer passes what it does not keep through that
// instead, a part of the layer or of the stage computed at a time (`n_wave`); and as soon as all that it needs is
// ordered, the next layers' experts are, before anybody knows their choice: nearly all of them will be needed.
// So copies go on while a layer computes and while its attention does.
//
// While a layer of a prompt computes and the next one's attention does, the link would rest: what is forecast for
// the next layers is then read into their slots, or through the stage, as much of it as the link brought until
// the last gates, and a little more.
//
// ordered.cc: what happens; ordered_needs.cc: a layer's needs; ordered_slots.cc: who gets a slot;
// ordered_ahead.cc: reading ahead in prompts; ordered_stage.cc: the stage; ordered_host.cc: the host's share;
// ordered_balance.cc: what becomes of it meanwhile.
//
// Where experts are cut, each part is copied and computed on its own, the top first, so that the
// top computes while the bottom is on its way (MoEpic, section 3.2). The other papers' pipelines are
// this one with other options; schedule/registry.cc names them.
#pragma once

#include "../evict/eviction.h"
#include "copy_desk.h"
#include "host_share.h"
#include "scheduler.h"

namespace outrider {

enum class ComputeOrder : uint8_t {
    router,   // as the router names them, one after the other
    arrived,  // what has arrived first
    tokens,   // what most tokens need first, then what arrives (Klotski, section 5)
};

// The steps of ProMoE's ablation (Figures 12 and 13), each on its own, and what others add.
struct OrderedOptions {  // the first three off, and nothing predicted: ProMoE's baseline
    bool chunks = true;            // copy matrix by matrix; otherwise whole experts
    bool early_preemption = true;  // at the gate all needed copies are queued; otherwise each when
                                   // its expert's turn to be computed comes
    ComputeOrder order = ComputeOrder::arrived;
    int32_t max_open = 0;  // missing parts that were given slots and are not computed, at most; 0: any number
    // A layer of a prompt that needs more than its slots hold passes experts through this many of them and
    // leaves the others to what is most worth keeping; 0: through all, and the last ones read stay.
    int32_t n_stream = 0;
    // A layer that passes experts through a stage is computed in about so many waves: with fewer, computing waits
    // longer for the first one, and more cost more launches.
    int32_t n_wave = 8;
    bool fill = false;  // a layer all of whose experts have slots gets those, too, that nobody asked for
    bool prefetch_after_first = false;  // the next layer's copies are ordered when the first expert of
                                        // this one can be computed (DuoServe-MoE, section 5.3)
};

class OrderedScheduler final : public Scheduler {
  public:
    // All must outlive the scheduler.
    OrderedScheduler(Residency & residency, Eviction & eviction, CopyDesk & desk, OrderedOptions options,
                     const HostShare & host);

    void pass_began(Phase phase) override;
    void push_predicted(const Forecast & forecast, Commands & out) override;
    void push_precise(Layer layer, std::span<const Demand> demands, Commands & out) override;
    void copied(Ticket ticket, Commands & out) override;
    void cancelled(Ticket ticket, Commands & out) override;
    void failed(Ticket ticket, Commands & out) override;
    void computed(Layer layer, Expert expert, Part part, Commands & out) override;
    void withdrawn(Layer layer, Expert expert, Commands & out) override;
    void balance(double us, Commands & out) override;
    void aborted(Commands & out) override;
    bool idle() const override { return n_open_ == 0; }
    double planned_device_us() const override;

  private:
    struct Need {  // a part of an expert of the layer in progress
        Expert expert;
        Part part;
        int32_t n_token;
        int32_t n_arrived = 0;  // chunks, at the gate
        double rank = 0;  // of equally many: the lower, the earlier
        bool stays = false;  // while the layer streams: it is worth a slot of the layer's own
        bool fetched = false;  // it got its slot by being needed, and is not computed
        bool issued = false;  // Compute was said
        bool computed = false;
        bool on_host = false;  // the host computes it: it needs no slot
        // Where host and device share the layer:
        Missing missing{};  // at the gate; no bytes: it was here, or only the device can have it
        size_t host_turn = 0;  // who goes to the host first
        bool taken_over = false;  // by the host: it was being copied
        bool withdrawing = false;  // the host was told not to compute it; it may have begun
        bool promoted = false;  // its predicted copies were called back, to be queued high
        int32_t attempts = 0;  // copies that failed
    };

    // Of a layer that host and device share.
    struct Rest {
        size_t n_host = 0;  // that the host has not computed
        double host_us = 0;
        Need * last_on_host = nullptr;  // what it will begin last
        DeviceQueue queue;
        // At least: all that is its own to compute, from the gate on. Some devices answer before they are done.
        double compute_us = 0;
        std::vector<Missing> to_come;  // to the device; the first one is last_to_come
        Need * last_to_come = nullptr;  // of those that the host could compute, what will arrive last
        bool any_waits = false;  // for a slot
    };

    // Of a layer that was not routed yet.
    struct Expected {
        std::vector<Expert> experts;  // the most probable first
        size_t n_read = 0;  // of these, here or ordered
    };

    static constexpr int32_t max_attempts = 3;
    static constexpr int32_t max_stream_token = 64;  // rows of several experts computed together while streaming

    bool strict() const { return options_.order == ComputeOrder::router; }
    Pool pool_of(const Need & need) const { return residency_.pool({layer_, need.part}); }
    Slot slot_of(const Need & need) const { return residency_.find({layer_, need.part}, need.expert); }
    void count(const Need & need);
    void share_with_host();
    void begin_on_host(Commands & out);
    Missing missing_of(const Need & need) const;
    Rest rest(double us);
    void take_over(Need & need, Commands & out);
    bool copies_pay(const Need & need) const;
    void keep_for_later(const Need & need, Commands & out);
    void want_open_needs(bool wanted_now);
    void sort_needs();
    void rank_needs();
    bool layer_streams() const;
    bool must_stream(Pool pool) const;
    Pool stage() const { return residency_.pool({layer_, Part::staged}); }
    bool passes_through(const Need & need) const;
    void sweep_stage();
    void stage_ahead(Commands & out);
    bool stage_layer(Layer layer, Commands & out);
    std::vector<uint8_t> worth_own_slots(Layer layer) const;
    void fill(Commands & out);
    size_t max_open() const;
    void fetch_predicted(const Forecast & forecast, Commands & out);
    bool lacks(Place place, Expert expert) const;
    bool claim_ahead(Place place, Expert expert);
    void order_ahead(Place place, Expert expert, Commands & out);
    bool reads_ahead() const { return phase_ == Phase::prefill && !strict() && options_.n_stream > 0; }
    bool needs_wait() const;
    void read_ahead(Commands & out);
    bool read_layer_ahead(Layer layer, Commands & out);
    void judge_ahead(Layer layer);
    void disappoint(Layer layer);
    Slot acquire_for_prefetch(Place place, Expert expert);
    Slot acquire_for_need(size_t position);
    Slot acquire_in_stage();
    Slot least_worthy(Pool pool, Layer layer);
    bool is_buffer(Pool pool) const { return residency_.layout().pools[size_t(pool)].buffer; }
    // How many layers after the last routed one a layer comes: 1 .. n_layer.
    int32_t n_ahead(Layer layer) const {
        const auto n_layer = int32_t(residency_.layout().layers.size());
        return layer > layer_ ? layer - layer_ : layer - layer_ + n_layer;
    }
    uint8_t & wanted(Expert expert, Part part) { return wanted_[size_t(expert) * n_place + size_t(part)]; }
    void settle(const Flight & flight, Commands & out);
    void serve(Commands & out);
    bool can_compute(const Need & need);
    void issue(Need & need, Commands & out);
    void issue_some(Commands & out);
    void issue_batch(Commands & out);
    bool try_fetch(size_t position, bool all_computed, bool & slots_left, Commands & out);
    void forget_fetch(Need & need);
    Need * find_need(Layer layer, Expert expert, Part part);
    bool is_open(const SlotInfo & info);
    bool is_kept(const SlotInfo & info);

    Residency & residency_;
    Eviction & eviction_;
    CopyDesk & desk_;
    OrderedOptions options_;
    HostShare host_;
    Phase phase_ = Phase::prefill;
    Layer layer_ = none;  // in progress
    bool streams_ = false;  // it passes experts through a few of its slots, or through the stage
    Layer ahead_ = none;  // whose experts are ordered next (stage_ahead)
    Expert ahead_from_ = 0;  // from this one on
    std::vector<uint8_t> ahead_stays_;  // [expert], of that layer
    Layer routed_ = none;  // the last one in this pass
    std::vector<Expected> expected_;  // [layer]
    size_t most_ahead_ = 48;  // copies that are ordered ahead of a gate and have not ended
    std::vector<std::vector<Expert>> displaced_;  // [layer]: gave way to what was expected, since it was last routed
    double regret_ = 0;  // the share of these that were needed after all, of late
    bool held_back_ = false;  // more would have been ordered than that
    std::vector<Need> needs_;  // in computing order
    size_t n_open_ = 0;  // of these, not yet computed
    size_t n_fetched_ = 0;  // of these, `fetched`
    size_t n_staged_ = 0;  // of these, in the stage
    int32_t n_issued_ = 0;  // and not computed
    int32_t n_issued_token_ = 0;  // of these together
    bool any_issued_ = false;  // of the layer in progress
    bool shares_ = false;  // of what the layer in progress misses, the host computes some, by speed
    bool all_on_host_ = false;  // or all
    DeviceQueue queue_;  // of the device, when these were shared
    bool host_moved_ = false, link_moved_ = false;  // since balance() was called
    double host_at_us_ = 0, link_at_us_ = 0;  // since the gate, when they had moved last
    std::vector<Forecast> held_;  // until the first Compute (prefetch_after_first)
    std::vector<std::vector<Expert>> prefetched_;  // [layer], since it was last routed
    // [expert, place]: what must not give way to another, while choosing who leaves; otherwise all 0
    std::vector<uint8_t> wanted_;
};

}  // namespace outrider
