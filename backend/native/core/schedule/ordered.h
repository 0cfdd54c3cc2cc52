// The prefetcher of ProMoE (section 5, Algorithms 1 and 2): predicted experts are queued low and
// touch what is resident; at the gate the layer's low copies are dropped, the needed experts are
// ordered by how much of them has arrived, the rest is queued high, and computation follows that
// order. Without forecasts it is a reactive cache.
#pragma once

#include <map>

#include "../evict/eviction.h"
#include "../residency.h"
#include "scheduler.h"

namespace outrider {

// The steps of ProMoE's ablation (Figures 12 and 13), each on its own.
struct OrderedOptions {  // all off, and nothing predicted: its baseline
    bool chunks = true;            // copy matrix by matrix; otherwise whole experts
    bool early_preemption = true;  // at the gate all needed copies are queued; otherwise each when
                                   // its expert's turn to be computed comes
    bool reorder = true;           // compute what is ready first; otherwise in the router's order
};

class OrderedScheduler final : public Scheduler {
  public:
    // Both must outlive the scheduler.
    OrderedScheduler(Residency & residency, Eviction & eviction, OrderedOptions options);

    void pass_began(Phase phase) override;
    void push_predicted(Layer layer, std::span<const Expert> experts, Commands & out) override;
    void push_precise(Layer layer, std::span<const Expert> experts, Commands & out) override;
    void copied(Ticket ticket, Commands & out) override;
    void cancelled(Ticket ticket, Commands & out) override;
    void failed(Ticket ticket, Commands & out) override;
    void computed(Layer layer, Expert expert, Commands & out) override;
    void aborted(Commands & out) override;
    bool idle() const override { return n_open_ == 0; }

  private:
    struct Flight {  // a copy between its order and its end
        Layer layer;
        Slot slot;
        uint32_t mask;
        Urgency urgency;
    };
    struct Need {  // an expert of the layer in progress
        Expert expert;
        bool issued = false;    // Compute was said
        bool computed = false;
        bool promoted = false;  // its predicted copies were called back, to be queued high
        int32_t attempts = 0;   // copies that failed
    };

    static constexpr int32_t max_attempts = 3;

    void issue_copies(Layer layer, Slot slot, Urgency urgency, Commands & out);
    void drop_predicted(Layer layer, Slot slot, Commands & out);
    Slot acquire_for_prefetch(Layer layer, std::span<const Expert> wanted);
    Slot acquire_for_need(size_t position);
    Slot least_worthy(Layer layer, std::span<const Expert> wanted) const;
    void settle(Layer layer, Slot slot, Commands & out);
    void serve(Commands & out);
    Need * find_need(Layer layer, Expert expert);
    bool is_open(Layer layer, Expert expert);

    Residency & residency_;
    Eviction & eviction_;
    OrderedOptions options_;
    Ticket next_ticket_ = 1;
    std::map<Ticket, Flight> flights_;  // ordered: commands come out in the same order every time
    Layer layer_ = none;                // in progress
    std::vector<Need> needs_;           // in computing order
    size_t n_open_ = 0;                 // of these, not yet computed
};

}  // namespace outrider
