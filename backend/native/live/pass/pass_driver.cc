#include "live/pass/pass_driver.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {
namespace {

// A stop must be seen even if a drive hangs.
constexpr std::chrono::milliseconds max_wait(50);

}  // namespace

std::unique_ptr<Cache> PassDriver::take_cache() {
    forget_pieces();
    partner_.reset();  // first: its thread uses the cache's pool
    return std::move(cache_);
}

void PassDriver::set_cache(std::unique_ptr<Cache> cache, const ExpertFiles & files, Hybrid hybrid) {
    partner_ = HostPartner::make(graph_, files, *cache, hybrid);
    cache_ = std::move(cache);
    for (const auto & work : cache_->works) {
        work->use_scheduler(scheduler_);
    }
    stall_us_.assign(size_t(graph_.shape.n_layer), 0);
    wave_us_.assign(size_t(graph_.shape.n_layer), 0);
    times_ = {};
    was_asked_ = false;
    n_plan_in_vain_ = 0;
    pairs_of_.assign(size_t(graph_.shape.n_expert), {});
    slot_of_.assign(size_t(graph_.shape.n_expert), none);
}

void PassDriver::set_scheduler(ggml_backend_sched_t scheduler, ggml_backend_sched_eval_callback callback, void * self) {
    forget_pieces();
    scheduler_ = scheduler;
    callback_ = callback;
    self_ = self;
    for (size_t i = 0; cache_ && i < cache_->works.size(); i++) {
        cache_->works[i]->use_scheduler(scheduler);
    }
}

// Take llama.cpp's callback away for a token that needs no stop, and give it back before other passes. When llama.cpp
// builds another graph, it sets the callback again by itself. The first pass of a cache always has it: a device that
// replays a recorded graph would otherwise replay the slots of the cache before.
void PassDriver::choose_callback(size_t n_token) {
    is_unasked_ = scheduler_ && !check && was_asked_ && n_token == 1 && !hook_.aborted();
    for (Layer l = 0; l < graph_.shape.n_layer; l++) {
        is_unasked_ = is_unasked_ && may_pass_by(l);
    }
    if (scheduler_) {
        ggml_backend_sched_set_eval_callback(scheduler_, is_unasked_ ? nullptr : callback_, self_);
    }
}

void PassDriver::begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences) {
    const Lock lock(mutex);
    if (!cache_) {
        throw std::runtime_error("The expert cache has no memory");
    }
    error_.clear();
    n_behind = 0;
    n_routed_ = 0;
    input_wanted_ = none;
    hook_.begin_pass();
    reader_.begin_pass();
    if (recorder) {
        recorder->pass_began(phase, tokens, sequences);
    }
    try {
        collect_arrivals();
        if (partner_) {
            partner_->pass_ended();
        }
        tell_speeds();
        tell(PassBegan{phase, tokens, sequences});
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
    began_us_ = now_us();
    busy_us_ = cache_->pool->link_busy_us();
    idle_us_ = 0;
    choose_callback(tokens.size());
    n_plan_in_vain_ = tokens.size() == 1 ? n_plan_in_vain_ : 0;  // a prompt has another graph anyway
    division_ = !is_unasked_ && may_divide(phase, tokens.size()) ? Division::undecided : Division::off;
}

bool PassDriver::stock(const std::vector<std::vector<Expert>> & experts,
                       const std::vector<std::vector<Expert>> & wanted) {
    collect_arrivals();
    for (size_t layer = 0; layer < experts.size() && layer < size_t(graph_.shape.n_layer); layer++) {
        if (!experts[layer].empty()) {
            tell(Stocked{Layer(layer), experts[layer],
                         layer < wanted.size() ? wanted[layer] : std::span<const Expert>()});
        }
    }
    return cache_->core->copies();
}

bool PassDriver::end_pass() {
    const Lock lock(mutex);
    if (pieces_) {
        pieces_->finish();
    }
    note_device_wait();
    finish_layer();
    while (is_unasked_ && n_routed_ < graph_.shape.n_layer && passes_by(n_routed_, 1)) {
    }
    times_.link_idle_us += idle_us_;
    was_asked_ = was_asked_ || !is_unasked_;
    is_unasked_ = false;
    const bool whole = hook_.end_pass();
    if (!whole && scheduler_) {
        ggml_backend_sched_synchronize(scheduler_);  // the next pass may find other memory
    }
    if (whole && division_ == Division::learning) {
        plan_pieces();
    }
    if (recorder) {
        recorder->pass_ended(whole);
    }
    return whole;
}

bool PassDriver::ask(ggml_tensor * node) {
    if (division_ != Division::off && begins_pieces(node)) {
        return true;
    }
    reader_.note(node);
    auto seen = hook_.see(node);
    if (seen == GraphHook::Seen::disorder) {
        late_stops_fail_ = true;
        const Lock lock(mutex);
        abort_pass("llama.cpp computed a layer in another order than before");
        seen = hook_.see(node);
    }
    if (seen != GraphHook::Seen::other || hook_.aborted()) {
        return seen == GraphHook::Seen::stop;
    }
    if (const LayerCheck * wanted = check; wanted && wanted->wants(node)) {
        checks_ = true;
        return true;
    }
    if (layer_of_logits(node)) {
        const Lock lock(mutex);
        return stops_for_input(node);
    }
    const auto il = layer_in_name(node, "ffn_moe_topk");
    const auto it = il ? graph_.layer_of_number.find(*il) : graph_.layer_of_number.end();
    if (it == graph_.layer_of_number.end()) {
        return false;
    }
    const Layer layer = it->second;
    if (LayerWindow * wanted = window) {
        wanted->reached(layer);
    }
    const Lock lock(mutex);
    if (passes_by(layer, int32_t(node->ne[1]))) {
        return false;
    }
    const bool late = may_stop_late(layer);
    hook_.plan_stop(node, layer, late ? graph_.late_stops[size_t(layer)].n_node - 1 : 0);
    return !late;
}

// Return whether llama.cpp may compute the layer without a stop: expert i is in slot i, and nobody reads the choice.
bool PassDriver::may_pass_by(Layer layer) const {
    return !recorder && !forced && !stopping && cache_ && cache_->core->may_skip(layer);
}

// Let llama.cpp compute the layer without a stop if it may.
bool PassDriver::passes_by(Layer layer, int32_t n_token) {
    if (!may_pass_by(layer)) {
        return false;
    }
    n_routed_ = layer + 1;
    try {
        tell(Unasked{layer, n_token});
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
    times_.n_unasked++;
    n_behind = layer;
    return true;
}

// Return whether the stop may come just before the layer's experts. A device then computes the router in one piece. A
// stop at the choice would split a fused kernel, and two kernels round differently. The CPU has no such kernels. At a
// late stop the probabilities of all experts are gone and routing can no longer be forced.
bool PassDriver::may_stop_late(Layer layer) const {
    const LateStop & stop = graph_.late_stops[size_t(layer)];
    return stop.n_node > 1 && is_own_device(layer) && !late_stops_fail_ && !forced && !recorder &&
           (stop.keeps_weights || !cache_->core->wants_weights());
}

// Return whether the layer is computed by a device with memory of its own.
bool PassDriver::is_own_device(Layer layer) const {
    return !ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(graph_.devices[size_t(layer)]));
}

// Return whether to stop at this router's mat-mul to read its input. Necessary before a late stop if the input's memory
// is in other use by then. The kernels that devices fuse begin after the mat-mul.
bool PassDriver::stops_for_input(const ggml_tensor * node) {
    const auto it = graph_.layer_of_number.find(layer_of_logits(node).value_or(-1));
    if (it == graph_.layer_of_number.end() || !cache_ || node->ne[1] == 0) {
        return false;
    }
    const Layer layer = it->second;
    if (graph_.late_stops[size_t(layer)].keeps_input || !cache_->core->wants_gate_input() || may_pass_by(layer) ||
        !may_stop_late(layer)) {
        return false;
    }
    input_wanted_ = layer;
    return true;
}

bool PassDriver::computed(ggml_tensor * node) {
    if (std::exchange(checks_, false)) {
        check.load()->look(node);
        return true;
    }
    const uint64_t began_us = now_us();
    const Lock lock(mutex);
    if (division_ == Division::starting) {
        node->op = first_op_;
        division_ = Division::off;
        const bool go_on = compute_pieces();
        times_.callback_us += now_us() - began_us;
        return go_on;
    }
    times_.n_stop++;
    bool go_on;
    try {
        if (hook_.in_waves()) {
            keep_inputs(node);
            go_on = !hook_.segment_ended() || run_waves();
        } else if (input_wanted_ != none) {
            finish_layer();
            const Layer layer = std::exchange(input_wanted_, none);
            reader_.read_input(layer, cache_->work(layer));
            go_on = true;
        } else {
            finish_layer();
            go_on = routed(hook_.take_choice(), hook_.choice_layer());
        }
    } catch (const std::exception & e) {
        go_on = abort_pass(e.what());
    }
    times_.callback_us += now_us() - began_us;
    return go_on;
}

// Return whether the pass in progress is to end now.
bool PassDriver::stops() { return stopping || cache_->pool->stops(); }

bool PassDriver::routed(ggml_tensor * topk, Layer layer) {
    if (stops()) {
        return abort_pass("");
    }
    hook_.begin_layer(layer);
    n_behind = layer;
    n_routed_ = layer + 1;
    if (topk->ne[1] == 0) {
        return true;
    }
    if (topk->ne[1] > cache_->options.max_token || topk->ne[0] != graph_.shape.n_expert_used) {
        return abort_pass("llama.cpp computed more tokens at once than it was told to");
    }
    if (forced) {
        forced->write(topk, layer);
    }
    read_router(topk, layer);
    collect_arrivals();
    ready_.clear();
    n_needed_ = 0;
    if (partner_) {
        partner_->clear();
    }
    if (reader_.n_token() > 1) {
        tell_speeds();  // a layer of a prompt takes as long as many tokens
    }
    routed_us_ = now_us();
    tell(Reached{layer});
    tell(Routed{{layer, reader_.n_token(), reader_.ids(), weights_for_core()}});
    note_idle();
    show_router(layer, ready_.size() == n_needed_);
    if (!await_experts(layer)) {
        return abort_pass("");
    }
    const bool own_slots =
        std::none_of(ready_.begin(), ready_.end(), [](const Compute & c) { return c.part == Part::staged; });
    // llama.cpp's own nodes cannot compute experts that are cut.
    if (ready_.size() == n_needed_ && own_slots && !cache_->layout.layers[size_t(layer)].is_cut()) {
        remap(cache_->work(layer));
        return true;
    }
    hook_.begin_waves();
    cache_->work(layer).waves().begin();
    if (partner_) {
        partner_->begin_waves();
    }
    sort_pairs();
    return true;
}

// Since the pass began, the link could have fetched what the layer lacks.
void PassDriver::note_idle() {
    if (ready_.size() < n_needed_) {
        idle_us_ = now_us() - began_us_ - (cache_->pool->link_busy_us() - busy_us_);
    }
}

// A decoded token on a device: wait for the missing experts if the layer has slots for all that it needs. Computing
// what is there in a wave meanwhile would cost more stops than it saves. Experts that are cut are still computed in
// waves, but in one for each part. Return false if the pass is to stop.
bool PassDriver::await_experts(Layer layer) {
    const LayerLayout & slots = cache_->layout.layers[size_t(layer)];
    if (reader_.n_token() > 1 || partner_ || !is_own_device(layer)) {
        return true;
    }
    size_t n_part = 0;
    for (const Part part : {Part::top, Part::bottom}) {
        if (const Pool pool = slots.pool_of(part); pool != none) {
            n_part++;
            if (size_t(cache_->layout.pools[size_t(pool)].n_slot) < n_needed_) {
                return true;
            }
        }
    }
    while (ready_.size() < n_part * n_needed_ && cache_->pool->n_open() > 0) {
        if (stops()) {
            return false;
        }
        wait();
        collect_arrivals();
    }
    return true;
}

void PassDriver::read_router(const ggml_tensor * topk, Layer layer) {
    const Core & core = *cache_->core;
    reader_.read(topk, layer, cache_->work(layer),
                 {.weights = recorder || core.wants_weights(),
                  .input = core.wants_gate_input() || (recorder && recorder->wants_inputs())},
                 hook_.stops_late(), hook_.final_weights());
    if (forced) {
        reader_.replace(forced->values(layer, reader_.n_token()));
    }
}

// Return the router's weights if the core wants them.
std::span<const float> PassDriver::weights_for_core() const {
    return cache_->core->wants_weights() ? reader_.weights() : std::span<const float>();
}

// Show the core and the recorder what they want of the layer's router. `delays`: the device waits for it.
void PassDriver::show_router(Layer layer, bool delays) {
    const auto input = reader_.input();
    if (!input.empty() && cache_->core->wants_gate_input()) {
        const uint64_t began_us = now_us();
        tell(GateSeen{layer, input, int32_t(input.size() / size_t(graph_.n_embd))});
        const uint64_t took_us = now_us() - began_us;
        times_.predict_us += took_us;
        times_.delay_us += delays ? took_us : 0;
    }
    if (!recorder) {
        return;
    }
    recorder->routed(layer, reader_.ids(), reader_.n_token(), reader_.weights());
    if (!reader_.probabilities().empty()) {
        recorder->scores(layer, reader_.probabilities());
    }
    if (!input.empty()) {
        recorder->input(layer, input);
    }
}

// Return the slots of the layer's choice, [n_token][n_expert_used]. REQUIRES: the experts are in slots of the layer.
std::span<const int32_t> PassDriver::slots_of_choice() {
    for (const Compute & c : ready_) {
        slot_of_[size_t(c.expert)] = c.slot;
    }
    const auto ids = reader_.ids();
    slots_.resize(ids.size());
    std::transform(ids.begin(), ids.end(), slots_.begin(), [&](Expert e) { return slot_of_[size_t(e)]; });
    return slots_;
}

// All experts are resident: llama.cpp's expert mat-muls read slots.
void PassDriver::remap(DeviceWork & work) {
    work.set_slot_ids(slots_of_choice(), reader_.n_token());
    hook_.remap(work.slot_ids());
    computing_.swap(ready_);
    ready_.clear();
}

// Sort the layer's (token, expert) pairs by expert.
void PassDriver::sort_pairs() {
    for (auto & pairs : pairs_of_) {
        pairs.clear();
    }
    const auto ids = reader_.ids();
    size_t i = 0;
    for (int32_t t = 0; t < reader_.n_token(); t++) {
        for (int32_t k = 0; k < graph_.shape.n_expert_used; k++, i++) {
            pairs_of_[size_t(ids[i])].push_back({t, k, ids[i], none});
        }
    }
}

// Copy what a node of the segment reads from outside, for the device and for the host.
void PassDriver::keep_inputs(const ggml_tensor * node) {
    cache_->work(hook_.layer()).waves().keep_inputs(hook_.segment(), node);
    if (partner_) {
        partner_->keep_inputs(hook_.segment(), node);
    }
}

// Compute the experts that are ready, then the others as they arrive.
bool PassDriver::run_waves() {
    hook_.undo();  // llama.cpp has skipped the segment
    for (const ggml_tensor * node : hook_.segment().nodes) {
        keep_inputs(node);
    }
    const uint64_t began_us = now_us();
    while (true) {
        collect_arrivals();
        share_with_host();
        if (ready_.empty() && cache_->core->idle()) {
            break;
        }
        if (stops()) {
            return abort_pass("");
        }
        if (ready_.empty()) {
            wait();
            continue;
        }
        compute_ready();
        if (partner_ && ready_.empty()) {
            partner_->device_done(hook_.segment(), reader_.n_token(), began_us);
        }
    }
    hook_.end_waves();
    return true;
}

void PassDriver::compute_ready() {
    const auto layer = size_t(hook_.layer());
    WaveRunner & waves = cache_->work(hook_.layer()).waves();
    const bool is_cut = cache_->layout.layers[layer].is_cut();
    computing_.swap(ready_);
    const uint64_t began_us = now_us();
    {
        const Unlocked unlocked(mutex);
        for (Part part : places) {  // the top first: a bottom is added to its rows
            run_wave(waves, part, part == Part::bottom && is_cut);
        }
    }
    const uint64_t waved_us = now_us() - began_us;
    times_.wave_us += waved_us;
    wave_us_[layer] += waved_us;
    times_.graph_us = times_.n_graph = 0;
    for (const auto & w : cache_->works) {
        times_.graph_us += w->waves().graph_us();
        times_.n_graph += w->waves().n_graph();
    }
    tell_computed();
}

void PassDriver::run_wave(WaveRunner & waves, Part part, bool add) {
    wave_.clear();
    for (const Compute & c : computing_) {
        if (c.part == part) {
            for (Pair pair : pairs_of_[size_t(c.expert)]) {
                pair.slot = c.slot;
                wave_.push_back(pair);
            }
        }
    }
    waves.run(hook_.segment(), wave_, part, add);
}

// Collect what the host has computed, let the core balance the shares, and start what the host is to compute next.
void PassDriver::share_with_host() {
    if (!partner_) {
        return;
    }
    while (const auto job = partner_->take()) {
        times_.host_us += uint64_t(job->us);
        tell(Computed{job->compute.layer, job->compute.expert, job->compute.part});
    }
    partner_->hand_over(hook_.segment(), cache_->work(hook_.layer()).waves());
    tell(CaughtUp{double(now_us() - routed_us_)});
    partner_->start(hook_.segment(), pairs_of_);
}

// Wait until a copy arrives or the host has computed an expert.
void PassDriver::wait() {
    Transfers & pool = *cache_->pool;
    HostPartner * partner = partner_.get();
    const bool host_works = partner && partner->busy();
    if (pool.n_open() == 0 && !host_works) {
        throw std::runtime_error("The expert cache waits for a copy that nobody ordered");
    }
    const uint64_t began_us = now_us();
    std::optional<Arrival> arrival;
    {
        const Unlocked unlocked(mutex);
        if (pool.n_open() > 0) {
            arrival = pool.wait_arrival(max_wait);
        } else {
            partner->wait(max_wait);
        }
    }
    const uint64_t waited_us = now_us() - began_us;
    (host_works ? wave_us_ : stall_us_)[size_t(hook_.layer())] += waited_us;
    (host_works ? times_.wave_us : times_.stall_us) += waited_us;
    times_.host_wait_us += host_works ? waited_us : 0;
    if (arrival) {
        note(*arrival);
        obey();
    }
}

// llama.cpp has computed the layer on slots: its experts may be evicted.
void PassDriver::finish_layer() {
    hook_.undo();
    tell_computed();
}

// End the pass; its results are void. Return false.
bool PassDriver::abort_pass(const std::string & error) {
    hook_.abort();
    if (partner_) {
        partner_->cancel();
    }
    computing_.clear();
    ready_.clear();
    commands_.clear();
    error_ = error;
    tell(Aborted{});
    return false;
}

void PassDriver::tell(const Event & event) {
    cache_->core->handle(event, commands_);
    obey();
}

// Tell the core, and leave its commands for obey().
void PassDriver::note(const Arrival & arrival) {
    if (arrival.error.empty()) {
        cache_->core->handle(Copied{arrival.ticket}, commands_);
    } else {
        copy_error_ = arrival.error;
        cache_->core->handle(Failed{arrival.ticket}, commands_);
    }
}

void PassDriver::tell_speeds() {
    if (partner_) {
        tell(Measured{partner_->update_speeds()});
    }
}

void PassDriver::tell_computed() {
    for (const Compute & c : computing_) {
        tell(Computed{c.layer, c.expert, c.part});
    }
    computing_.clear();
}

// Obey the core's commands, also those that it adds meanwhile.
void PassDriver::obey() {
    Core & core = *cache_->core;
    for (size_t i = 0; i < commands_.size(); i++) {
        // Take what is needed of a command before the list grows.
        if (const auto * compute = std::get_if<Compute>(&commands_[i])) {
            compute->slot == none ? partner_->plan(*compute) : ready_.push_back(*compute);
        } else if (const auto * copy = std::get_if<Copy>(&commands_[i])) {
            submit(*copy);
        } else if (const auto * cancel = std::get_if<Cancel>(&commands_[i])) {
            const Ticket ticket = cancel->ticket;
            if (cache_->pool->cancel(ticket)) {
                core.handle(Cancelled{ticket}, commands_);
            }
        } else if (const auto * back = std::get_if<Withdraw>(&commands_[i])) {
            const Withdraw command = *back;
            if (partner_->withdraw(command.expert)) {
                core.handle(Withdrawn{command.layer, command.expert}, commands_);
            }
        } else if (const auto * order = std::get_if<Order>(&commands_[i])) {
            n_needed_ = order->experts.size();
        } else {
            gave_up_ = true;
        }
    }
    commands_.clear();
    // Not earlier: the core relies on the copies that it ordered after it gave up.
    if (std::exchange(gave_up_, false) && !hook_.aborted()) {
        throw std::runtime_error(copy_error_);
    }
}

void PassDriver::submit(Copy copy) {
    Transfers & pool = *cache_->pool;
    if (!cache_->options.copies_at_once()) {
        pool.submit(copy);
        return;
    }
    if (gave_up_) {  // the pass is lost: do not try this copy
        cache_->core->handle(Failed{copy.ticket}, commands_);
        return;
    }
    const uint64_t began_us = now_us();
    pool.submit(copy);
    const uint64_t waited_us = now_us() - began_us;
    times_.stall_us += waited_us;
    stall_us_[size_t(copy.layer)] += waited_us;
    note(*pool.try_arrival());
}

void PassDriver::collect_arrivals() {
    while (const auto arrival = cache_->pool->try_arrival()) {
        note(*arrival);
        obey();
    }
}

PatchTimes PassDriver::times() const {
    PatchTimes times = times_;
    if (cache_) {
        times.link_busy_us = cache_->pool->link_busy_us();
    }
    return times;
}

}  // namespace outrider
