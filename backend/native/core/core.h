// The cache as a deterministic state machine: events in, commands out. The live engine and a
// simulator own the very same object; one thread at a time may use it.
#pragma once

#include <memory>
#include <span>

#include "evict/eviction.h"
#include "predict/confidence.h"
#include "predict/predictor.h"
#include "residency.h"
#include "schedule/ordered.h"

namespace outrider {

struct CoreOptions {
    OrderedOptions schedule;
    int32_t n_predict = 0;  // experts asked of the predictor; 0: as many as are used per token
    double min_precision = 0;  // ranks of a forecast that are right less often are not fetched
};

class Core {
  public:
    // predictor may be null: a reactive cache.
    Core(Shape shape, std::vector<int32_t> n_slot, CoreOptions options, std::unique_ptr<Predictor> predictor);

    // Every event returns what is to be done, in this order.
    void pass_began(Phase phase);
    // `ids`: the router's choice for every token, n_expert_used each.
    Commands routed(Layer layer, std::span<const Expert> ids);
    // `input`: the MoE input of the layer, n_token rows. Say routed() first: the needs of the
    // present layer go before those of the next.
    Commands gate_seen(Layer layer, std::span<const float> input, int32_t n_token);
    // A forecast from elsewhere, as gate_seen() would have made it.
    Commands predicted(const Forecast & forecast);
    Commands copied(Ticket ticket);
    Commands cancelled(Ticket ticket);
    Commands failed(Ticket ticket);
    Commands computed(Layer layer, Expert expert);
    Commands aborted();

    bool wants_gate_input() const { return predictor_ != nullptr; }
    bool idle() const { return scheduler_->idle(); }

    const Shape & shape() const { return shape_; }
    const Residency & residency() const { return residency_; }
    // One byte per (layer, expert): 0 absent, 1 resident, 2 arriving; plus 4 for a hit, 8 for a
    // late one, 12 for a miss if it was needed in the layer's last pass.
    std::vector<uint8_t> snapshot() const;

  private:
    Shape shape_;
    CoreOptions options_;
    Residency residency_;
    std::unique_ptr<Eviction> eviction_;
    std::unique_ptr<Scheduler> scheduler_;
    std::unique_ptr<Predictor> predictor_;
    Confidence confidence_;
    std::vector<uint8_t> found_;  // [layer * n_expert + expert]: 0, 4, 8 or 12 as in snapshot()
};

}  // namespace outrider
