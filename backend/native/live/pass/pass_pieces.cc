// Tokens in pieces: the patch computes a token's layers on a device itself, on the scheduler's own backend.
//
// The graph is divided before each layer's first expert mat-mul (graph/pieces.h). Piece i + 1 begins with the experts
// of layer i and ends with the router of layer i + 1. The host waits once for each layer, for its choice. It sends the
// slots and enqueues the next piece on the same stream.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "live/ggml/clock.h"
#include "live/pass/pass_driver.h"

namespace outrider {
namespace {

// llama.cpp builds the graphs of some architectures anew for each token. Then plans are of no use.
constexpr int max_plan_in_vain = 3;

// ggml does not use a tensor's last bytes. It clears them when it makes a tensor, so a mark there says that llama.cpp
// has not built its graph anew.
void set_mark(ggml_tensor * node, uint64_t number) {
    static_assert(sizeof node->padding == sizeof number);
    std::memcpy(node->padding, &number, sizeof number);
}

uint64_t mark_of(const ggml_tensor * node) {
    uint64_t number;
    std::memcpy(&number, node->padding, sizeof number);
    return number;
}

}  // namespace

bool PassDriver::may_divide(Phase phase, size_t n_token) const {
    return scheduler_ && phase == Phase::decode && n_token == 1 && !partner_ && !recorder && !forced && !check &&
           !window && !hook_.aborted() && is_own_device(graph_.shape.n_layer - 1);
}

void PassDriver::forget_pieces() {
    pieces_.reset();
    planned_ = nullptr;
}

// See a node before it runs. Return whether to stop there and compute the rest in pieces.
bool PassDriver::begins_pieces(ggml_tensor * node) {
    if (division_ == Division::undecided) {
        const Lock lock(mutex);
        const bool known = node == planned_ && mark_of(node) == plan_number_;
        if (known) {
            n_plan_in_vain_ = 0;
        } else {
            n_plan_in_vain_ += planned_ != nullptr;
            forget_pieces();
        }
        const bool learns = !known && n_plan_in_vain_ < max_plan_in_vain;
        division_ = known && pieces_ ? Division::planned : learns ? Division::learning : Division::ordinary;
        seen_.clear();
    }
    if (division_ == Division::learning) {
        seen_.push_back(node);
        return false;
    }
    if (division_ != Division::planned) {
        return false;
    }
    const Lock lock(mutex);
    if (node != pieces_->first()) {
        return false;
    }
    const Core & core = *cache_->core;
    for (const RoutedNodes & layer : pieces_->layers()) {
        if ((core.wants_weights() && !layer.weights) || (core.wants_gate_input() && !layer.input)) {
            division_ = Division::ordinary;
            return false;
        }
    }
    division_ = Division::starting;
    first_op_ = node->op;
    node->op = GGML_OP_NONE;  // it is computed with its piece
    return true;
}

// Learn from the nodes of the token that was just computed how the next one can be.
void PassDriver::plan_pieces() {
    if (seen_.empty()) {
        return;
    }
    forget_pieces();
    planned_ = seen_.front();
    set_mark(seen_.front(), ++plan_number_);
    // A split of the scheduler ends where another backend computes. The last one is taken: its nodes are read by no
    // other split.
    ggml_backend_t last = nullptr;
    int n_split = 0;
    size_t begin = 0;
    for (size_t i = 0; i < seen_.size(); i++) {
        const bool is_view = seen_[i]->op == GGML_OP_VIEW || seen_[i]->op == GGML_OP_RESHAPE ||
                             seen_[i]->op == GGML_OP_PERMUTE || seen_[i]->op == GGML_OP_TRANSPOSE;
        const auto backend = is_view ? last : ggml_backend_sched_get_tensor_backend(scheduler_, seen_[i]);
        if (backend != last) {
            begin = last ? i : 0;
            last = backend;
            n_split++;
        }
    }
    if (!last || n_split != ggml_backend_sched_get_n_splits(scheduler_)) {
        return;
    }
    auto pieces = divide(std::span(seen_).subspan(begin), graph_);
    if (!pieces) {
        return;
    }
    for (const RoutedNodes & r : pieces->layers) {
        const LayerLayout & slots = cache_->layout.layers[size_t(r.layer)];
        const Pool pool = slots.is_cut() ? none : slots.pool_of(Part::top);
        if (!may_stop_late(r.layer) || pool == none ||
            cache_->layout.pools[size_t(pool)].n_slot < graph_.shape.n_expert_used ||
            graph_.devices[size_t(r.layer)] != ggml_backend_get_device(last)) {
            return;
        }
    }
    pieces_ = PieceRunner::make(*pieces, last, graph_);
}

// Compute the token's layers. Returns false: the scheduler is to leave out its own split, which is its last one.
bool PassDriver::compute_pieces() {
    pieces_->begin({.weights = cache_->core->wants_weights(), .input = cache_->core->wants_gate_input()});
    try {
        if (!run_pieces()) {
            pieces_->finish();
            abort_pass("");
        }
    } catch (const std::exception & e) {
        pieces_->finish();
        abort_pass(e.what());
    }
    pieces_->end();
    return false;
}

bool PassDriver::run_pieces() {
    pieces_->compute(0, false, !may_skip_piece(0));
    for (size_t i = 0; i < pieces_->layers().size(); i++) {
        const Layer layer = pieces_->layers()[i].layer;
        if (stopping) {
            return false;
        }
        if (may_skip_piece(i)) {
            pieces_->compute(i + 1, false, !may_skip_piece(i + 1));
            passes_by(layer, 1);
        } else if (!compute_routed(i)) {
            return false;
        }
    }
    return true;
}

// Return whether the layer of this number needs no slots and no choice.
bool PassDriver::may_skip_piece(size_t number) const {
    return number >= pieces_->layers().size() || cache_->core->may_skip(pieces_->layers()[number].layer);
}

// Compute the piece that begins with the experts of this layer. Return false if the pass is to stop.
bool PassDriver::compute_routed(size_t number) {
    PieceRunner & runner = *pieces_;
    const Layer layer = runner.layers()[number].layer;
    const bool brings = !may_skip_piece(number + 1);
    times_.n_stop++;
    {
        const Unlocked unlocked(mutex);
        runner.finish();
    }
    note_device_wait();
    reader_.take(runner.ids(number), runner.weights(number), runner.input(number));
    walk_->computed(Walk::Obey::together);
    walk_->begin_layer();
    hook_.begin_layer(layer);
    n_behind = layer;
    n_routed_ = layer + 1;
    routed_us_ = now_us();
    walk_->route({layer, 1, reader_.ids(), weights_for_core()}, true, Walk::Obey::together);
    note_idle();
    const auto compute = [&]() REQUIRES(mutex) {
        runner.set_slots(number, slots_of_choice());
        runner.compute(number + 1, true, brings);
    };
    // What the core now learns of the router takes time, and changes no slot that the layer needs.
    auto step = walk_->next();
    const bool are_there = step == Walk::Step::slots;
    if (are_there) {
        compute();
    }
    show_router(layer, false);
    walk_->collect();
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
    Transfers & pool = *cache_->pool;
    PieceRunner & runner = *pieces_;
    const auto wanted = [&](const Copy & copy) {
        return copy.part == Part::top && std::ranges::find(reader_.ids(), copy.expert) != reader_.ids().end();
    };
    pool.tell_begun(true);
    auto step = walk_->next();
    for (; step == Walk::Step::wait && !stopping; step = walk_->next()) {
        const auto tickets =
            pool.hand_over(layer, wanted, [&runner](ggml_backend_event_t event) { runner.wait_for(event); });
        for (const Ticket ticket : tickets) {
            walk_->tell(Copied{ticket});
            device_waits_ = layer;
        }
        if (tickets.empty()) {
            wait();
        }
    }
    pool.tell_begun(false);
    device_waits_since_us_ = now_us();
    return step;
}

// The piece that the device waited with is over: it was delayed until the last copy was there.
void PassDriver::note_device_wait() {
    const Layer layer = std::exchange(device_waits_, none);
    const uint64_t until_us = layer == none ? 0 : cache_->pool->handed_over_us();
    if (until_us > device_waits_since_us_) {
        stall_us_[size_t(layer)] += until_us - device_waits_since_us_;
        times_.stall_us += until_us - device_waits_since_us_;
    }
}

}  // namespace outrider
