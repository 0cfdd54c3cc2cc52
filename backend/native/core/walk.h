// The walk through a layer: the order of the events that a core receives, and the points at which its commands are
// obeyed. The live engine and the simulator execute the same walk, so their cores see the same events.
//
//     computed() of the layer before ─▶ begin_layer() ─▶ route() ─▶ gate seen ─▶ next(), again and again:
//
//     wait ─▶ waited() ─┬▶ slots ─▶ computed(), when the next layer is reached
//                       └▶ waves ─▶ wave ─▶ computed(), or wait ─▶ waited(), ─▶ over
//
// It waits for nothing, and may rest between any two calls: llama.cpp computes meanwhile.
#pragma once

#include <optional>
#include <vector>

#include "core/core.h"

namespace outrider {

struct CopyEnd {
    Ticket ticket;
    bool failed = false;
};

// Obeys a core's commands: the live engine or the simulator. Its exceptions end the pass.
class Driver {
  public:
    virtual ~Driver() = default;

    // Begin a copy. Return its end if it has ended already. `is_lost`: the pass is; a copy that runs at once may fail.
    virtual std::optional<CopyEnd> submit(const Copy & copy, bool is_lost) = 0;
    // The copies of this moment have been submitted.
    virtual void submitted() {}
    // Return whether the copy had not begun. It never will then.
    virtual bool cancel(Ticket ticket) = 0;
    // Return the next copy that has ended, if there is one.
    virtual std::optional<CopyEnd> take() = 0;
    // Whether a copy is in flight.
    virtual bool copies() const = 0;
    // An expert cannot be read. Throws.
    virtual void gave_up() = 0;

    // The host is to compute an expert, or, if it has not begun, no longer: then withdraw() returns true.
    virtual void compute_on_host(const Compute & compute) = 0;
    virtual bool withdraw(Expert expert) = 0;
    // Return the next expert that the host has computed, if there is one.
    virtual std::optional<Compute> take_from_host() = 0;
    // Return the time since the layer was routed (CaughtUp), or nothing if the host computes no experts.
    virtual std::optional<double> caught_up_us() = 0;
};

class Walk {
  public:
    // Both outlive the walk.
    Walk(Core & core, Driver & driver) : core_(core), driver_(driver) {}

    // The driver's work before it calls next() again. It may abort() instead.
    enum class Step : uint8_t {
        wait,  // until a copy ends or the host has computed an expert: waited()
        slots,  // computing() is all that the layer needs, each expert in a slot of its own: compute it at once
        waves,  // compute the layer in waves
        wave,  // compute computing(), then call computed()
        over,  // the layer needs nothing more
    };
    // After each event, or once after some events of the same moment.
    enum class Obey : uint8_t { each, together };

    // Between passes or layers.
    void begin_pass();
    void begin_layer();
    // After begin_pass(): tell the core of the pass, and before of its sequences that are new.
    void tell_of(const PassBegan & event);
    // REQUIRES: begin_layer(). `gathers`: a decoded token waits for all experts of the layer if it has slots for them.
    void route(const Routing & routing, bool gathers, Obey when = Obey::each);
    Step next();
    void waited(const std::optional<CopyEnd> & end);
    void computed(Obey when = Obey::each);
    void abort();

    // Tell the core of anything else, and obey.
    void tell(const Event & event) { note(event, Obey::each); }
    // Tell the core of copies that have ended, and obey.
    void collect();

    // Whether all that the layer needs has come. REQUIRES: since route(), no step but Step::wait.
    bool has_all() const { return ready_.size() >= n_needed_; }
    bool has_ready() const { return !ready_.empty(); }
    std::span<const Compute> computing() const { return computing_; }

  private:
    enum class State : uint8_t { over, begun, routed, waves };

    void note(const Event & event, Obey when);
    void note(const CopyEnd & end);
    void obey();
    void share_with_host();
    size_t n_part() const { return layout().is_cut() ? 2 : 1; }
    const LayerLayout & layout() const { return core_.layout().layers[size_t(layer_)]; }
    bool has_slots() const;

    static constexpr size_t most_sequences_ = 256;  // of a context

    Core & core_;
    Driver & driver_;
    std::vector<int32_t> sequences_;  // that have begun; those that took part last are the last
    State state_ = State::over;
    Layer layer_ = none;
    bool gathers_ = false;
    bool aborted_ = false;  // the pass was
    bool gave_up_ = false;  // the core did
    Commands commands_;  // not yet obeyed
    size_t n_needed_ = 0;  // experts of the layer
    std::vector<Compute> ready_;  // commanded, not yet to be computed
    std::vector<Compute> computing_;  // the core is told when they are computed
};

}  // namespace outrider
