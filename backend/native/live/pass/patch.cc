// INVARIANT: between two answers of true nothing that the callback was shown has run; so a node's
// `op` and `src` may be changed from the moment it is asked for until then. Whatever is changed is
// undone as soon as the node has run, for llama.cpp uses the same graph again.
#include "live/pass/patch.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {
namespace {

// A drive that hangs must not keep a stop from being seen.
constexpr std::chrono::milliseconds max_wait(50);

// Lets readers in while nothing of the core is touched. REQUIRES: the mutex is held.
class Unlocked {
  public:
    explicit Unlocked(std::mutex & mutex) : mutex_(mutex) { mutex_.unlock(); }
    ~Unlocked() { mutex_.lock(); }

  private:
    std::mutex & mutex_;
};

}  // namespace

bool Patch::callback(ggml_tensor * node, bool ask, void * self) {
    auto & patch = *static_cast<Patch *>(self);
    return ask ? patch.ask(node) : patch.computed(node);
}

void Patch::request_began() {
    std::lock_guard lock(mutex_);
    if (core_) {
        core_->request_began();
    }
    if (recorder_) {
        recorder_->request_began();
    }
}

void Patch::tune(const Tuning & tuning) {
    std::lock_guard lock(mutex_);
    if (core_) {
        core_->tune(tuning);
    }
}

void Patch::begin_pass(Phase phase, const std::vector<int32_t> & tokens) {
    if (mode_ == Mode::probing) {
        probe_->pass_began();
        return;
    }
    std::lock_guard lock(mutex_);
    if (!core_) {
        throw std::runtime_error("The expert cache has no memory");
    }
    mode_ = Mode::off;
    error_.clear();
    n_behind_ = 0;
    std::fill(logits_.begin(), logits_.end(), nullptr);
    std::fill(probabilities_of_.begin(), probabilities_of_.end(), nullptr);
    layer_ = none;
    choice_ = nullptr;
    if (recorder_) {
        recorder_->pass_began(phase, tokens);
    }
    try {
        collect_arrivals();
        speed_meter_.pass_ended();
        tell_speeds();
        core_->pass_began(phase, tokens, commands_);
        obey();
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
}

bool Patch::end_pass() {
    if (mode_ == Mode::probing) {
        error_ = probe_->pass_ended();
        return error_.empty();
    }
    std::lock_guard lock(mutex_);
    finish_layer();
    const bool whole = mode_ != Mode::aborted;
    mode_ = Mode::off;
    if (recorder_) {
        recorder_->pass_ended(whole);
    }
    return whole;
}

// Before a node runs: true to be called again once it, and all before it, has run.
bool Patch::ask(ggml_tensor * node) {
    if (mode_ == Mode::probing) {
        probe_->see(node);
        return false;
    }
    note_router(node);
    if (choice_ && is_weights(node, choice_)) {
        final_weights_ = node;
    }
    if (choice_ && --n_to_stop_ == 0) {
        return true;
    }
    if (node->op == GGML_OP_MUL_MAT_ID) {
        const auto it = graph_.layer_of_tensor.find(node->src[0]);
        if (choice_ && it != graph_.layer_of_tensor.end()) {
            late_stops_fail_ = true;
            std::lock_guard lock(mutex_);
            abort_pass("llama.cpp computed a layer in another order than before");
        } else if (it != graph_.layer_of_tensor.end() && it->second == layer_) {
            if (mode_ == Mode::remap && n_token_ > 0) {
                undo_.push_back({node, node->op, node->src[2]});
                node->src[2] = work().slot_ids();
                return false;
            }
            if (segment_.nodes.empty()) {
                segment_.ids = node->src[2];
            }
        }
    }
    if (mode_ == Mode::waves && segment_.ids && n_seen_ < graph_.patterns[layer_].size()) {
        return skip(node);
    }
    if (mode_ == Mode::aborted && node->op == GGML_OP_MUL_MAT_ID) {
        undo_.push_back({node, node->op, nullptr});
        node->op = GGML_OP_NONE;
        return false;
    }
    if (const auto il = layer_in_name(node, "ffn_moe_topk"); il && mode_ != Mode::aborted) {
        const auto it = graph_.layer_of_number.find(*il);
        return it != graph_.layer_of_number.end() && !passes_by(it->second, int32_t(node->ne[1])) &&
               route(node, it->second);
    }
    return false;
}

// A router's choice has been asked for that must be read. True to stop there; otherwise computing stops
// before the layer's first expert mat-mul.
bool Patch::route(ggml_tensor * topk, Layer layer) {
    std::lock_guard lock(mutex_);
    choice_ = topk;
    choice_layer_ = layer;
    final_weights_ = nullptr;
    stops_late_ = may_stop_late(layer);
    n_to_stop_ = stops_late_ ? graph_.late_stops[size_t(layer)].n_node - 1 : 0;
    return !stops_late_;
}

// Whether llama.cpp may compute this layer as it is, with nobody looking at the router's choice: its experts
// are all there, each in the slot of its own number.
bool Patch::passes_by(Layer layer, int32_t n_token) {
    if (mode_ == Mode::probing || recorder_ || forced_ || stopping_) {
        return false;
    }
    std::lock_guard lock(mutex_);
    if (!core_ || !core_->may_skip(layer)) {
        return false;
    }
    try {
        core_->unasked(layer, n_token, commands_);
        obey();
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
    times_.n_unasked++;
    n_behind_ = layer;
    return true;
}

// A layer that is computed in waves: llama.cpp computes nothing of the segment, but what lies
// between. True where the inputs must be kept before that, and at the segment's end.
bool Patch::skip(ggml_tensor * node) {
    const auto & pattern = graph_.patterns[layer_];
    const bool of_segment = pattern[n_seen_++];
    if (!of_segment) {
        return false;
    }
    segment_.nodes.push_back(node);
    undo_.push_back({node, node->op, nullptr});
    node->op = GGML_OP_NONE;
    return n_seen_ == pattern.size() || pattern.size() != size_t(std::count(pattern.begin(), pattern.end(), true));
}

// After a node has run. False ends the pass.
bool Patch::computed(ggml_tensor * node) {
    const uint64_t began_us = now_us();
    std::lock_guard lock(mutex_);
    times_.n_stop++;
    bool go_on;
    try {
        if (mode_ == Mode::waves && segment_.ids) {
            keep_inputs(node);
            go_on = n_seen_ < graph_.patterns[layer_].size() || run_waves();
        } else {
            finish_layer();
            go_on = routed(std::exchange(choice_, nullptr), choice_layer_);
        }
    } catch (const std::exception & e) {
        go_on = abort_pass(e.what());
    }
    times_.callback_us += now_us() - began_us;
    return go_on;
}

bool Patch::routed(ggml_tensor * topk, Layer layer) {
    if (stopping_) {
        return abort_pass("");
    }
    layer_ = layer;
    n_behind_ = layer;
    n_token_ = int32_t(topk->ne[1]);
    segment_.ids = nullptr;
    segment_.nodes.clear();
    if (n_token_ == 0) {
        mode_ = Mode::remap;
        return true;
    }
    if (n_token_ > options_.max_token || topk->ne[0] != graph_.shape.n_expert_used) {
        return abort_pass("llama.cpp computed more tokens at once than it was told to");
    }
    if (forced_) {
        forced_->write(topk, layer);
    }
    read_router(topk, layer);
    collect_arrivals();
    ready_.clear();
    for_host_.clear();
    n_needed_ = 0;
    if (n_token_ > 1) {
        tell_speeds();  // a prompt's layer takes as long as many tokens
    }
    routed_us_ = now_us();
    core_->routed({layer, n_token_, ids_, weights_}, commands_);
    obey();
    see_gate(layer);
    // Experts that are cut cannot be computed by llama.cpp's own nodes.
    const bool own_slots =
        std::none_of(ready_.begin(), ready_.end(), [](const Compute & c) { return c.part == Part::staged; });
    if (ready_.size() == n_needed_ && own_slots && !layout_.layers[size_t(layer)].is_cut()) {
        remap();
        return true;
    }
    mode_ = Mode::waves;
    n_seen_ = 0;
    work().waves().begin();
    begin_host();
    sort_pairs();
    return true;
}

// Everything is resident: llama.cpp's own mat-muls read slots instead of experts.
void Patch::remap() {
    for (const Compute & c : ready_) {
        slot_of_[size_t(c.expert)] = c.slot;
    }
    slots_.resize(ids_.size());
    std::transform(ids_.begin(), ids_.end(), slots_.begin(), [&](Expert e) { return slot_of_[size_t(e)]; });
    work().set_slot_ids(slots_, n_token_);
    computing_.swap(ready_);
    ready_.clear();
    mode_ = Mode::remap;
}

// The rows of the layer in progress, by expert.
void Patch::sort_pairs() {
    for (auto & pairs : pairs_of_) {
        pairs.clear();
    }
    size_t i = 0;
    for (int32_t t = 0; t < n_token_; t++) {
        for (int32_t k = 0; k < graph_.shape.n_expert_used; k++, i++) {
            pairs_of_[size_t(ids_[i])].push_back({t, k, ids_[i], none});
        }
    }
}

// Copies what a node of the layer in progress reads from outside for whoever will compute it.
void Patch::keep_inputs(const ggml_tensor * node) {
    work().waves().keep_inputs(segment_, node);
    if (!for_host_.empty()) {
        const uint64_t began_us = now_us();
        host_work_->keep_inputs(segment_, node);
        handed_us_ += now_us() - began_us;
    }
}

// Some experts are late, or cut: compute what is here, then the others as they arrive.
bool Patch::run_waves() {
    undo_changes();  // the segment has not run and will not: it is computed here
    for (const ggml_tensor * node : segment_.nodes) {
        keep_inputs(node);
    }
    waves_began_us_ = now_us();
    while (true) {
        collect_arrivals();
        collect_host();
        balance_host();
        if (ready_.empty() && core_->idle()) {
            break;
        }
        if (stopping_) {
            return abort_pass("");
        }
        if (ready_.empty()) {
            wait(layer_);
            continue;
        }
        computing_.swap(ready_);
        const uint64_t began_us = now_us();
        {
            const Unlocked unlocked(mutex_);
            for (Part part : {Part::top, Part::bottom, Part::staged}) {  // a bottom is added to what its top has made
                run_wave(part);
            }
        }
        const uint64_t waved_us = now_us() - began_us;
        times_.wave_us += waved_us;
        times_.graph_us = times_.n_graph = 0;
        for (const auto & w : works_) {
            times_.graph_us += w->waves().graph_us();
            times_.n_graph += w->waves().n_graph();
        }
        wave_us_[size_t(layer_)] += waved_us;
        for (const Compute & c : computing_) {
            core_->computed(c.layer, c.expert, c.part, commands_);
            obey();
        }
        computing_.clear();
        note_device_done();
    }
    segment_.ids = nullptr;
    segment_.nodes.clear();
    mode_ = Mode::remap;  // nothing of this layer is left to change
    n_token_ = 0;
    return true;
}

void Patch::run_wave(Part part) {
    wave_.clear();
    for (const Compute & c : computing_) {
        if (c.part == part) {
            for (Pair pair : pairs_of_[size_t(c.expert)]) {
                pair.slot = c.slot;
                wave_.push_back(pair);
            }
        }
    }
    const bool add = part == Part::bottom && layout_.layers[size_t(layer_)].is_cut();
    work().waves().run(segment_, wave_, part, add);
}

// Does what the core has said, and what it says to that.
void Patch::obey() {
    for (size_t i = 0; i < commands_.size(); i++) {  // the list may grow
        if (const auto * compute = std::get_if<Compute>(&commands_[i])) {
            (compute->slot == none ? for_host_ : ready_).push_back(*compute);
        } else if (const auto * copy = std::get_if<Copy>(&commands_[i])) {
            submit(*copy);
        } else if (const auto * cancel = std::get_if<Cancel>(&commands_[i])) {
            const Ticket ticket = cancel->ticket;
            if (pool_->cancel(ticket)) {
                core_->cancelled(ticket, commands_);
            }
        } else if (const auto * back = std::get_if<Withdraw>(&commands_[i])) {
            const Withdraw command = *back;
            if (withdraw(command)) {
                core_->withdrawn(command.layer, command.expert, commands_);
            }
        } else if (const auto * order = std::get_if<Order>(&commands_[i])) {
            n_needed_ = order->experts.size();
        } else {
            gave_up_ = true;  // once everything has been obeyed: the core counts on its copies
        }
    }
    commands_.clear();
    if (std::exchange(gave_up_, false) && mode_ != Mode::aborted) {
        throw std::runtime_error(copy_error_);
    }
}

void Patch::submit(Copy copy) {
    if (options_.n_transfer_thread > 0) {
        pool_->submit(copy);
        return;
    }
    if (gave_up_) {  // the pass is lost: nothing needs to be tried any more
        core_->failed(copy.ticket, commands_);
        return;
    }
    const uint64_t began_us = now_us();
    pool_->submit(copy);
    const uint64_t waited_us = now_us() - began_us;
    times_.stall_us += waited_us;
    stall_us_[size_t(copy.layer)] += waited_us;
    tell(*pool_->try_arrival());
}

void Patch::collect_arrivals() {
    while (const auto arrival = pool_->try_arrival()) {
        tell(*arrival);
        obey();
    }
}

void Patch::tell(const Arrival & arrival) {
    if (arrival.error.empty()) {
        core_->copied(arrival.ticket, commands_);
    } else {
        copy_error_ = arrival.error;
        core_->failed(arrival.ticket, commands_);
    }
}

// Until something has arrived or the host has computed something.
void Patch::wait(Layer layer) {
    const bool host_works = host_work_ && host_work_->busy();
    if (pool_->n_open() == 0 && !host_works) {
        throw std::runtime_error("The expert cache waits for a copy that nobody ordered");
    }
    const uint64_t began_us = now_us();
    std::optional<Arrival> arrival;
    {
        const Unlocked unlocked(mutex_);
        if (pool_->n_open() > 0) {
            arrival = pool_->wait_arrival(max_wait);
        } else {
            host_work_->wait(max_wait);
        }
    }
    const uint64_t waited_us = now_us() - began_us;
    if (host_works) {
        wave_us_[size_t(layer)] += waited_us;
        times_.wave_us += waited_us;
        times_.host_wait_us += waited_us;
    } else {
        stall_us_[size_t(layer)] += waited_us;
        times_.stall_us += waited_us;
    }
    if (arrival) {
        tell(*arrival);
        obey();
    }
}

// The layer that llama.cpp computed on slots has run: its experts may leave.
void Patch::finish_layer() {
    undo_changes();
    for (const Compute & c : computing_) {
        core_->computed(c.layer, c.expert, c.part, commands_);
        obey();
    }
    computing_.clear();
}

void Patch::undo_changes() {
    for (const Undo & u : undo_) {
        u.node->op = u.op;
        if (u.ids) {
            u.node->src[2] = u.ids;
        }
    }
    undo_.clear();
}

bool Patch::abort_pass(const std::string & error) {
    undo_changes();
    if (host_work_) {
        host_work_->cancel();
    }
    choice_ = nullptr;
    computing_.clear();
    ready_.clear();
    for_host_.clear();
    error_ = error;
    mode_ = Mode::aborted;
    commands_.clear();
    core_->aborted(commands_);
    obey();
    return false;
}

}  // namespace outrider
