// Tokens in pieces: the patch computes a token's layers on a device itself, on the scheduler's own backend.
//
// The graph is divided before each layer's first expert mat-mul (graph/pieces.h). Piece i + 1 begins with the experts
// of layer i and ends with the router of layer i + 1. The host waits once for each layer, for its choice. It sends the
// slots and enqueues the next piece on the same stream.
#include <algorithm>
#include <stdexcept>

#include "live/pass/pass_driver.h"

namespace outrider {

bool PassDriver::may_divide(Phase phase, size_t n_token) const {
    return callback_.scheduler() && phase == Phase::decode && n_token == 1 && !layers_->partner() &&
           !reader_.is_watched() && !check_ && !window_ && !hook_.aborted() &&
           layers_->cache().is_own_device(graph_.shape.n_layer - 1);
}

// Return whether a token's layer can be computed in pieces on `device`.
bool PassDriver::fits_piece(Layer layer, ggml_backend_dev_t device) const {
    const Layout & layout = layers_->cache().layout;
    const LayerLayout & slots = layout.layers[size_t(layer)];
    const Pool pool = slots.is_cut() ? none : slots.pool_of(Part::top);
    return may_stop_late(layer) && pool != none && layout.pools[size_t(pool)].n_slot >= graph_.shape.n_expert_used &&
           graph_.devices[size_t(layer)] == device;
}

// Compute the token's layers. Returns false: the scheduler is to leave out its own split, which is its last one.
bool PassDriver::compute_pieces() {
    const Core & core = layers_->core();
    PieceRunner & runner = plan_.runner();
    runner.begin({.weights = core.wants_weights(), .input = core.wants_gate_input()});
    try {
        if (!run_pieces()) {
            runner.finish();
            abort_pass("");
        }
    } catch (const std::exception & e) {
        runner.finish();
        abort_pass(e.what());
    }
    runner.end();
    return false;
}

bool PassDriver::run_pieces() {
    PieceRunner & runner = plan_.runner();
    runner.compute(0, false, !may_skip_piece(0));
    for (size_t i = 0; i < runner.layers().size(); i++) {
        const Layer layer = runner.layers()[i].layer;
        if (stopping_) {
            return false;
        }
        if (may_skip_piece(i)) {
            runner.compute(i + 1, false, !may_skip_piece(i + 1));
            passes_by(layer, 1);
        } else if (!compute_routed(i)) {
            return false;
        }
    }
    return true;
}

// Return whether the layer of this number needs no slots and no choice.
bool PassDriver::may_skip_piece(size_t number) const {
    const auto & layers = plan_.runner().layers();
    return number >= layers.size() || layers_->core().may_skip(layers[number].layer);
}

// Compute the piece that begins with the experts of this layer. Return false if the pass is to stop.
bool PassDriver::compute_routed(size_t number) {
    PieceRunner & runner = plan_.runner();
    LayerDriver & layers = *layers_;
    Walk & walk = layers.walk();
    const Layer layer = runner.layers()[number].layer;
    const bool brings = !may_skip_piece(number + 1);
    clock_.sums.n_stop++;
    {
        const Unlocked unlocked(mutex_);
        runner.finish();
    }
    clock_.device_waited(layers.cache().pool->handed_over_us());
    reader_.take(runner.ids(number), runner.weights(number), runner.input(number));
    walk.computed(Walk::Obey::together);
    hook_.begin_layer(layer);
    n_routed_ = layer + 1;
    layers.route(layer, Walk::Obey::together);
    const auto compute = [&] {
        runner.set_slots(number, layers.slots_of_choice());
        runner.compute(number + 1, true, brings);
    };
    // Telling the core about the router takes time, and changes no slot that the layer needs.
    auto step = walk.next();
    const bool are_there = step == Walk::Step::slots;
    if (are_there) {
        compute();
    }
    layers.show_router(layer, false);
    walk.collect();
    if (!are_there) {
        step = await_on_device(layer);
        if (step == Walk::Step::wait) {
            return false;
        }
        if (step != Walk::Step::slots) {
            throw std::runtime_error("A token's experts did not come into the slots of its layer");
        }
        compute();
    }
    return true;
}

// Wait until the experts that the layer lacks are there or on their way. The device waits for the latter, so the next
// piece can be enqueued meanwhile. Such an expert counts as there: nothing but that piece uses its slot until the piece
// is over. Return the step after that, or Step::wait if the pass is to stop.
Walk::Step PassDriver::await_on_device(Layer layer) {
    Transfers & pool = *layers_->cache().pool;
    Walk & walk = layers_->walk();
    PieceRunner & runner = plan_.runner();
    const auto wanted = [&](const Copy & copy) {
        return copy.part == Part::top && std::ranges::find(reader_.ids(), copy.expert) != reader_.ids().end();
    };
    pool.tell_begun(true);
    bool waits = false;
    auto step = walk.next();
    for (; step == Walk::Step::wait && !stopping_; step = walk.next()) {
        const auto tickets =
            pool.hand_over(layer, wanted, [&runner](ggml_backend_event_t event) { runner.wait_for(event); });
        for (const Ticket ticket : tickets) {
            walk.tell(Copied{ticket});
            waits = true;
        }
        if (tickets.empty()) {
            work();
        }
    }
    pool.tell_begun(false);
    if (waits) {
        clock_.device_waits(layer);
    }
    return step;
}

}  // namespace outrider
