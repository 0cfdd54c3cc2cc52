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
    walk_.reset();
    partner_.reset();  // first: its thread uses the cache's pool
    return std::move(cache_);
}

void PassDriver::set_cache(std::unique_ptr<Cache> cache, const ExpertFiles & files, Hybrid hybrid) {
    partner_ = HostPartner::make(graph_, files, *cache, hybrid);
    cache_ = std::move(cache);
    walk_.emplace(*cache_->core, static_cast<Driver &>(*this));
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
        walk_->begin_pass();
        if (partner_) {
            partner_->pass_ended();
        }
        tell_speeds();
        walk_->tell(PassBegan{phase, tokens, sequences});
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
    walk_->collect();
    for (size_t layer = 0; layer < experts.size() && layer < size_t(graph_.shape.n_layer); layer++) {
        if (!experts[layer].empty()) {
            walk_->tell(Stocked{Layer(layer), experts[layer],
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
        walk_->tell(Unasked{layer, n_token});
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
    if (topk->ne[1] > cache_->options.max_token || topk->ne[0] != graph_.shape.used(layer)) {
        return abort_pass("llama.cpp computed more tokens at once than it was told to");
    }
    if (forced) {
        forced->write(topk, layer);
    }
    read_router(topk, layer);
    walk_->begin_layer();
    if (partner_) {
        partner_->clear();
    }
    if (reader_.n_token() > 1) {
        tell_speeds();  // a layer of a prompt takes as long as many tokens
    }
    routed_us_ = now_us();
    // Computing what is there in a wave meanwhile would cost a device more stops than it saves. Experts that are cut
    // are still computed in waves, but in one for each part.
    walk_->route({layer, reader_.n_token(), reader_.ids(), weights_for_core()}, !partner_ && is_own_device(layer));
    note_idle();
    show_router(layer, walk_->has_all());
    return run_layer();
}

// Do what the layer needs, until llama.cpp is to compute or it needs nothing more. Return false if the pass is to stop.
bool PassDriver::run_layer() {
    while (true) {
        const auto step = walk_->next();
        if (partner_ && hook_.in_waves()) {
            partner_->start(hook_.segment(), pairs_of_);
        }
        if (step == Walk::Step::over) {
            hook_.end_waves();
            return true;
        }
        if (step == Walk::Step::slots) {
            remap();
            return true;
        }
        if (step == Walk::Step::waves) {
            plan_waves();
            return true;
        }
        if (stops()) {
            return abort_pass("");
        }
        step == Walk::Step::wait ? wait() : compute_wave();
    }
}

// Since the pass began, the link could have fetched what the layer lacks.
void PassDriver::note_idle() {
    if (!walk_->has_all()) {
        idle_us_ = now_us() - began_us_ - (cache_->pool->link_busy_us() - busy_us_);
    }
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
        walk_->tell(GateSeen{layer, input, int32_t(input.size() / size_t(graph_.n_embd))});
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

// Return the slots of the layer's choice, [n_token][Shape::used]. REQUIRES: the experts are in slots of the layer.
std::span<const int32_t> PassDriver::slots_of_choice() {
    for (const Compute & c : walk_->computing()) {
        slot_of_[size_t(c.expert)] = c.slot;
    }
    const auto ids = reader_.ids();
    slots_.resize(ids.size());
    std::transform(ids.begin(), ids.end(), slots_.begin(), [&](Expert e) { return slot_of_[size_t(e)]; });
    return slots_;
}

// All experts are resident: llama.cpp's expert mat-muls read slots.
void PassDriver::remap() {
    DeviceWork & work = cache_->work(hook_.layer());
    work.set_slot_ids(slots_of_choice(), reader_.n_token());
    hook_.remap(work.slot_ids());
}

// llama.cpp is to skip the layer's experts. They are computed when it reaches them.
void PassDriver::plan_waves() {
    hook_.begin_waves();
    cache_->work(hook_.layer()).waves().begin();
    if (partner_) {
        partner_->begin_waves();
    }
    sort_pairs();
}

// Sort the layer's (token, expert) pairs by expert.
void PassDriver::sort_pairs() {
    for (auto & pairs : pairs_of_) {
        pairs.clear();
    }
    const auto ids = reader_.ids();
    size_t i = 0;
    for (int32_t t = 0; t < reader_.n_token(); t++) {
        for (int32_t k = 0; k < graph_.shape.used(hook_.layer()); k++, i++) {
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

// llama.cpp has reached the layer's experts, and has skipped them.
bool PassDriver::run_waves() {
    hook_.undo();
    for (const ggml_tensor * node : hook_.segment().nodes) {
        keep_inputs(node);
    }
    waves_began_us_ = now_us();
    return run_layer();
}

void PassDriver::compute_wave() {
    const auto layer = size_t(hook_.layer());
    WaveRunner & waves = cache_->work(hook_.layer()).waves();
    const bool is_cut = cache_->layout.layers[layer].is_cut();
    const auto computing = walk_->computing();
    const uint64_t began_us = now_us();
    {
        const Unlocked unlocked(mutex);
        for (Part part : places) {  // the top first: a bottom is added to its rows
            run_wave(waves, computing, part, part == Part::bottom && is_cut);
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
    walk_->computed();
    if (partner_ && !walk_->has_ready()) {
        partner_->device_done(hook_.segment(), reader_.n_token(), waves_began_us_);
    }
}

void PassDriver::run_wave(WaveRunner & waves, std::span<const Compute> computing, Part part, bool add) {
    wave_.clear();
    for (const Compute & c : computing) {
        if (c.part == part) {
            for (Pair pair : pairs_of_[size_t(c.expert)]) {
                pair.slot = c.slot;
                wave_.push_back(pair);
            }
        }
    }
    waves.run(hook_.segment(), wave_, part, add);
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
    walk_->waited(arrival ? std::optional(end_of(*arrival)) : std::nullopt);
}

// llama.cpp has computed the layer on slots: its experts may be evicted.
void PassDriver::finish_layer() {
    hook_.undo();
    walk_->computed();
}

// End the pass; its results are void. Return false.
bool PassDriver::abort_pass(const std::string & error) {
    hook_.abort();
    if (partner_) {
        partner_->cancel();
    }
    error_ = error;
    walk_->abort();
    return false;
}

void PassDriver::tell_speeds() {
    if (partner_) {
        walk_->tell(Measured{partner_->update_speeds()});
    }
}

CopyEnd PassDriver::end_of(const Arrival & arrival) {
    if (!arrival.error.empty()) {
        copy_error_ = arrival.error;
    }
    return {arrival.ticket, !arrival.error.empty()};
}

std::optional<CopyEnd> PassDriver::submit(const Copy & copy, bool is_lost) {
    Transfers & pool = *cache_->pool;
    if (!cache_->options.copies_at_once()) {
        pool.submit(copy);
        return std::nullopt;
    }
    if (is_lost) {
        return CopyEnd{copy.ticket, true};
    }
    const uint64_t began_us = now_us();
    pool.submit(copy);
    const uint64_t waited_us = now_us() - began_us;
    times_.stall_us += waited_us;
    stall_us_[size_t(copy.layer)] += waited_us;
    return end_of(*pool.try_arrival());
}

std::optional<CopyEnd> PassDriver::take() {
    const auto arrival = cache_->pool->try_arrival();
    return arrival ? std::optional(end_of(*arrival)) : std::nullopt;
}

void PassDriver::gave_up() { throw std::runtime_error(copy_error_); }

std::optional<Compute> PassDriver::take_from_host() {
    const auto job = partner_ ? partner_->take() : std::nullopt;
    times_.host_us += job ? uint64_t(job->us) : 0;
    return job ? std::optional(job->compute) : std::nullopt;
}

std::optional<double> PassDriver::caught_up_us() {
    if (!partner_) {
        return std::nullopt;
    }
    partner_->hand_over(hook_.segment(), cache_->work(hook_.layer()).waves());
    return double(now_us() - routed_us_);
}

PatchTimes PassDriver::times() const {
    PatchTimes times = times_;
    if (cache_) {
        times.link_busy_us = cache_->pool->link_busy_us();
    }
    return times;
}

}  // namespace outrider
