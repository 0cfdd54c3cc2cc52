// The prefetcher of ProMoE (section 5, Algorithms 1 and 2): predicted experts are queued low, and the experts that
// they displace leave when a copy starts; at the gate the layer's low copies are cancelled, arrived chunks stay, the
// needed experts are ordered by their arrived share, their missing chunks are queued high, and computation follows
// that order. Without forecasts it is a reactive cache.
//
// A layer of a prompt may need more experts than it has slots: it streams. Most experts then pass through a few slots,
// in the order of the file, or through the stage (stage.h), and the other slots keep what is most worth keeping. So
// what decoding will need is resident when the prompt ends, not what was read last.
//
// A cut expert's parts are copied and computed one by one, the top first: the top computes while the bottom is in
// flight (MoEpic, section 3.2). The other papers' pipelines are this one with other options; schedule/registry.cc
// names them.
//
// Parts: need_list.h the needs of the layer in progress; victims.h who is evicted; read_ahead.h forecasts; stage.h the
// stage; host_sharing.h what the host computes.
#pragma once

#include "core/schedule/host_sharing.h"
#include "core/schedule/read_ahead.h"
#include "core/schedule/scheduler.h"
#include "core/schedule/stage.h"

namespace outrider {

struct OrderedState {  // before the parts that refer to it
    OrderedOptions options;
    bool many = true;
    NeedList needs;
};

class OrderedScheduler final : public Scheduler, OrderedState, OrderedPart {
  public:
    // All must outlive the scheduler.
    OrderedScheduler(Residency & residency, Eviction & eviction, CopyDesk & desk, const OrderedOptions & options,
                     const HostShare & host);

    void pass_began(Phase phase, bool many) override;
    void push_predicted(const Forecast & forecast, Commands & out) override;
    void gate_reached(Layer layer, Commands & out) override;
    void push_precise(Layer layer, std::span<const Demand> demands, Commands & out) override;
    void copied(Ticket ticket, Commands & out) override;
    void cancelled(Ticket ticket, Commands & out) override;
    void failed(Ticket ticket, Commands & out) override;
    void computed(Layer layer, Expert expert, Part part, Commands & out) override;
    void withdrawn(Layer layer, Expert expert, Commands & out) override;
    void balance(double us, Commands & out) override { sharing_.balance(us, out); }
    void aborted(Commands & out) override;
    bool idle() const override { return needs_.n_open() == 0; }
    double planned_device_us() const override { return sharing_.planned_device_us(); }
    double regret() const override { return ahead_.regret_of_tokens(); }
    void check() const override;

  private:
    void count(Need & need);
    size_t max_open() const;
    void fill(Commands & out);
    void serve(Commands & out);
    void issue(Need & need, Commands & out);
    void issue_some(Commands & out);
    void issue_wave(Commands & out);
    bool try_fetch(size_t position, bool all_done, bool & slots_left, Commands & out);
    Slot acquire(size_t position);
    void lose(const SlotInfo & info);
    void fetch_first_of_next(Commands & out);
    void settle(Pool pool, Slot slot, Commands & out);

    Victims victims_;
    ReadAhead ahead_;
    Stage stage_;
    HostSharing sharing_;
    Layer first_of_ = none;        // its first expert was ordered ahead
    std::vector<Forecast> held_;  // until the first Compute (prefetch_after_first)
};

}  // namespace outrider
