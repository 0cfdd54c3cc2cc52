// Running ahead: a token's layers on a device, each begun before the host knows the choice of its experts.
//
// The graph is divided before each layer's first expert mat-mul (graph/pieces.h). Piece i + 1 begins with the experts
// of layer i and ends with the router of layer i + 1. When the host waits for the choice of layer i, piece i + 1 has
// been enqueued. A table in the device's memory says there which slot has which expert. If a chosen expert was not in
// the table, the piece is computed again when the expert has arrived.
//
// INVARIANT: from the moment when a layer's table is sent until its choice is known, no command of the core is obeyed,
// so no slot of the table changes. What the choice uses is pinned then. Until the piece is over, a copy into another
// slot that the piece may read waits for it (read_slots_).
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

bool PassDriver::may_run_ahead(Phase phase, size_t n_token) const {
    return cache_->options.run_ahead != RunAhead::off && scheduler_ && phase == Phase::decode && n_token == 1 &&
           !partner_ && !recorder && !forced && !check && !window && !hook_.aborted();
}

void PassDriver::forget_ahead() {
    ahead_.reset();
    planned_ = nullptr;
    read_slots_.clear();
}

// See a node before it runs. Return whether to stop there and run ahead.
bool PassDriver::begins_ahead(ggml_tensor * node) {
    if (ahead_state_ == Ahead::undecided) {
        const Lock lock(mutex);
        const bool known = node == planned_ && mark_of(node) == plan_number_;
        if (known) {
            n_plan_in_vain_ = 0;
        } else {
            n_plan_in_vain_ += planned_ != nullptr;
            forget_ahead();
        }
        const bool learns = !known && n_plan_in_vain_ < max_plan_in_vain;
        ahead_state_ = known && ahead_ ? Ahead::planned : learns ? Ahead::learning : Ahead::ordinary;
        seen_.clear();
    }
    if (ahead_state_ == Ahead::learning) {
        seen_.push_back(node);
        return false;
    }
    if (ahead_state_ != Ahead::planned) {
        return false;
    }
    const Lock lock(mutex);
    if (node != ahead_->first()) {
        return false;
    }
    const Core & core = *cache_->core;
    for (const RoutedNodes & layer : ahead_->layers()) {
        if ((core.wants_weights() && !layer.weights) || (core.wants_gate_input() && !layer.input)) {
            ahead_state_ = Ahead::ordinary;
            return false;
        }
    }
    ahead_state_ = Ahead::starting;
    first_op_ = node->op;
    node->op = GGML_OP_NONE;  // it is computed with its piece
    return true;
}

// Learn from the nodes of the token that was just computed how the next one can be.
void PassDriver::plan_ahead() {
    if (seen_.empty()) {
        return;
    }
    forget_ahead();
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
    ahead_ = AheadRunner::make(std::move(*pieces), last, graph_);
}

// Compute the token's layers. Returns false: the scheduler is to leave out its own split, which is its last one.
bool PassDriver::compute_ahead() {
    ahead_->begin({.weights = cache_->core->wants_weights(), .input = cache_->core->wants_gate_input()});
    try {
        if (!run_layers_ahead()) {
            ahead_->finish();
            abort_pass("");
        }
    } catch (const std::exception & e) {
        ahead_->finish();
        abort_pass(e.what());
    }
    ahead_->end();
    return false;
}

bool PassDriver::run_layers_ahead() {
    ahead_->compute(0, false, !may_skip_ahead(0));
    for (size_t i = 0; i < ahead_->layers().size(); i++) {
        const Layer layer = ahead_->layers()[i].layer;
        if (stopping) {
            return false;
        }
        if (may_skip_ahead(i)) {
            ahead_->compute(i + 1, false, !may_skip_ahead(i + 1));
            passes_by(layer, 1);
        } else if (!compute_layer_ahead(i)) {
            return false;
        }
    }
    return true;
}

// Return whether the layer of this number needs no slots and no choice.
bool PassDriver::may_skip_ahead(size_t number) const {
    return number >= ahead_->layers().size() || cache_->core->may_skip(ahead_->layers()[number].layer);
}

bool PassDriver::compute_layer_ahead(size_t number) {
    AheadRunner & runner = *ahead_;
    const Layer layer = runner.layers()[number].layer;
    const bool brings = !may_skip_ahead(number + 1);
    const bool any = find_slots(layer);
    const bool ahead = any && runner.is_repeatable(number + 1) &&
                       (cache_->options.run_ahead == RunAhead::always || ahead_rule_.runs(layer));
    if (ahead) {
        runner.set_slots(number, sent_table_);
        runner.compute(number + 1, true, brings);
        times_.n_ahead++;
    } else {
        times_.n_stop++;
    }
    runner.wait_for(number);
    reader_.take(runner.ids(number), runner.weights(number), runner.input(number));
    // The layer before is computed. What that allows is ordered below, when the choice is known.
    read_slots_.clear();
    for (const Compute & c : computing_) {
        cache_->core->handle(Computed{c.layer, c.expert, c.part}, commands_);
    }
    computing_.clear();
    if (!ahead) {
        obey();
        collect_arrivals();
    }
    hook_.begin_layer(layer);
    n_behind = layer;
    n_routed_ = layer + 1;
    ready_.clear();
    n_needed_ = 0;
    routed_us_ = now_us();
    cache_->core->handle(Reached{layer}, commands_);
    cache_->core->handle(Routed{{layer, 1, reader_.ids(), reader_.weights()}}, commands_);
    const auto ids = reader_.ids();
    if (ahead) {
        const Pool pool = cache_->layout.layers[size_t(layer)].pool_of(Part::top);
        for (const Expert e : ids) {
            read_slots_.emplace_back(pool, sent_table_[size_t(e)]);
        }
    }
    const bool there = std::ranges::none_of(ids, [&](Expert e) { return table_[size_t(e)] == none; });
    const bool right = ahead && there;
    ahead_rule_.judge(layer, there);
    obey();
    show_router(layer);
    collect_arrivals();
    while (ready_.size() < n_needed_) {
        if (stopping) {
            return false;
        }
        wait();
        collect_arrivals();
    }
    for (const Compute & c : ready_) {
        if (c.part != Part::top) {
            throw std::runtime_error("A token's experts did not come into the slots of its layer");
        }
        sent_table_[size_t(c.expert)] = c.slot;
    }
    if (!right) {
        runner.set_slots(number, sent_table_);
        runner.compute(number + 1, true, brings);
        times_.n_redone += ahead;
    }
    computing_.swap(ready_);
    ready_.clear();
    return true;
}

// Note which slot has which expert of the layer. The experts that are not there get the slot of one that is. Return
// whether any is.
bool PassDriver::find_slots(Layer layer) {
    const Residency & residency = cache_->core->residency();
    const Place place{layer, Part::top};
    const Pool pool = residency.pool(place);
    table_.assign(size_t(graph_.shape.n_expert), none);
    Slot any = none;
    for (Expert e = 0; e < graph_.shape.n_expert; e++) {
        const Slot slot = residency.find(place, e);
        if (slot != none && residency.at(pool, slot).state == SlotState::ready) {
            table_[size_t(e)] = slot;
            any = any == none ? slot : any;
        }
    }
    sent_table_.assign(table_.begin(), table_.end());
    std::ranges::replace(sent_table_, int32_t(none), int32_t(any));
    return any != none;
}

}  // namespace outrider
