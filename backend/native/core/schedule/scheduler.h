// Decides which experts are copied, and in which order. A scheduler drives one layer at a time: it gets forecasts,
// the routed experts and the ends of copies, and answers with commands.
#pragma once

#include <span>

#include "core/predict/predictor.h"
#include "core/types.h"

namespace outrider {

class Scheduler {
  public:
    virtual ~Scheduler() = default;

    // `many`: the pass has many tokens: a prompt, or one token of each of several sequences.
    virtual void pass_began(Phase phase, bool many) = 0;
    // Experts that a layer will probably need, the most probable first.
    virtual void push_predicted(const Forecast & forecast, Commands & out) = 0;
    // The layer's router is about to choose: drop forecasts for the layer whose copies have not begun.
    virtual void gate_reached(Layer layer, Commands & out) = 0;
    // Experts that `layer` needs now, each once, in the router's order.
    // REQUIRES: every expert of the layer before has been computed, or the pass was aborted.
    virtual void push_precise(Layer layer, std::span<const Demand> demands, Commands & out) = 0;
    virtual void copied(Ticket ticket, Commands & out) = 0;
    virtual void cancelled(Ticket ticket, Commands & out) = 0;
    virtual void failed(Ticket ticket, Commands & out) = 0;
    virtual void computed(Layer layer, Expert expert, Part part, Commands & out) = 0;
    // The host will not compute this expert (Withdraw).
    virtual void withdrawn(Layer layer, Expert expert, Commands & out) = 0;
    // The scheduler knows all that happened up to `us` after push_precise(): let host and device help each other.
    virtual void balance(double us, Commands & out) = 0;
    // The layer in progress will not be finished: forget its needs and cancel its copies, so that the next pass does
    // not wait behind them.
    virtual void aborted(Commands & out) = 0;
    // True when every expert of the layer in progress has been computed.
    virtual bool idle() const = 0;
    // How long the device should take for the layer in progress, as measured; 0: unknown, or nothing is copied
    // (host_share.h).
    virtual double planned_device_us() const = 0;
    // The recent share of the experts evicted for a token's forecasts that the next token needed.
    virtual double regret() const = 0;
    // Aborts the process if an invariant does not hold.
    virtual void check() const = 0;
};

}  // namespace outrider
