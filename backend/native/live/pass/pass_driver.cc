#include "live/pass/pass_driver.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {

std::unique_ptr<Cache> PassDriver::take_cache() {
    plan_.forget();
    auto cache = layers_ ? layers_->take_cache() : nullptr;
    layers_.reset();
    return cache;
}

void PassDriver::set_cache(std::unique_ptr<Cache> cache, const ExpertFiles & files, Hybrid hybrid) {
    for (const auto & work : cache->works) {
        work->use_scheduler(callback_.scheduler());
    }
    layers_ = std::make_unique<LayerDriver>(graph_, files, std::move(cache), hybrid, hook_, reader_, clock_);
    clock_.begin_cache(graph_.shape.n_layer);
    callback_.begin_cache();
}

void PassDriver::drop_cache() {
    const Lock lock(mutex_);
    take_cache();
}

void PassDriver::use_scheduler(ggml_backend_sched_t scheduler, ggml_backend_sched_eval_callback callback, void * self) {
    const Lock lock(mutex_);
    plan_.forget();
    callback_.use_scheduler(scheduler, callback, self);
    for (size_t i = 0; layers_ && i < layers_->cache().works.size(); i++) {
        layers_->cache().works[i]->use_scheduler(scheduler);
    }
}

void PassDriver::begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences) {
    const Lock lock(mutex_);
    if (!layers_) {
        throw std::runtime_error("The expert cache has no memory");
    }
    error_.clear();
    n_routed_ = 0;
    input_wanted_ = none;
    hook_.begin_pass();
    reader_.begin_pass(phase, tokens, sequences);
    try {
        layers_->begin_pass({phase, tokens, sequences});
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
    clock_.begin_pass(layers_->cache().pool->link_busy_us());
    const bool off = callback_.may_be_off() && !check_ && tokens.size() == 1 && !hook_.aborted() && may_pass_all_by();
    callback_.begin_pass(off);
    plan_.begin_pass(tokens.size(), !off && may_divide(phase, tokens.size()));
}

void PassDriver::request_began() {
    const Lock lock(mutex_);
    if (layers_) {
        layers_->core().handle(RequestBegan{});
    }
    reader_.request_began();
}

void PassDriver::record(Recorder * recorder) {
    const Lock lock(mutex_);
    reader_.record(recorder);
}

void PassDriver::force(const ForcedRouting * forced) {
    const Lock lock(mutex_);
    reader_.force(forced);
}

void PassDriver::record_events(bool wanted) {
    const Lock lock(mutex_);
    events_ = wanted ? std::optional<EventLog>(std::in_place) : std::nullopt;
    if (layers_) {
        layers_->core().record(events_ ? &*events_ : nullptr);
    }
}

EventLog PassDriver::take_events() {
    const Lock lock(mutex_);
    return events_ ? std::exchange(*events_, {}) : EventLog();
}

bool PassDriver::stock(const std::vector<std::vector<Expert>> & experts,
                       const std::vector<std::vector<Expert>> & wanted) {
    const Lock lock(mutex_);
    if (!layers_) {
        return false;
    }
    Walk & walk = layers_->walk();
    walk.collect();
    for (size_t layer = 0; layer < experts.size() && layer < size_t(graph_.shape.n_layer); layer++) {
        if (!experts[layer].empty()) {
            walk.tell(Stocked{Layer(layer), experts[layer],
                              layer < wanted.size() ? wanted[layer] : std::span<const Expert>()});
        }
    }
    return layers_->core().copies();
}

bool PassDriver::end_pass() {
    const Lock lock(mutex_);
    if (!layers_) {
        return hook_.end_pass();
    }
    plan_.finish();
    clock_.device_waited(layers_->cache().pool->handed_over_us());
    layers_->finish();
    while (callback_.is_off() && n_routed_ < graph_.shape.n_layer && passes_by(n_routed_, 1)) {
    }
    clock_.end_pass();
    callback_.end_pass();
    const bool whole = hook_.end_pass();
    if (!whole && callback_.scheduler()) {
        ggml_backend_sched_synchronize(callback_.scheduler());  // the next pass may find other memory
    }
    if (whole && callback_.scheduler()) {
        plan_.learn(callback_.scheduler(),
                    [&](Layer layer, ggml_backend_dev_t device) REQUIRES(mutex_) { return fits_piece(layer, device); });
    }
    reader_.end_pass(whole);
    return whole;
}

bool PassDriver::ask(ggml_tensor * node) {
    if (plan_.sees_first(node)) {
        const Lock lock(mutex_);
        if (plan_.starts(node, layers_->core())) {
            return true;
        }
    }
    reader_.note(node);
    auto seen = hook_.see(node);
    if (seen == GraphHook::Seen::disorder) {
        late_stops_fail_ = true;
        const Lock lock(mutex_);
        abort_pass("llama.cpp computed a layer in another order than before");
        seen = hook_.see(node);
    }
    if (seen != GraphHook::Seen::other || hook_.aborted()) {
        return seen == GraphHook::Seen::stop;
    }
    if (const LayerCheck * wanted = check_; wanted && wanted->wants(node)) {
        checks_ = true;
        return true;
    }
    if (layer_of_logits(node)) {
        const Lock lock(mutex_);
        return stops_for_input(node);
    }
    const auto il = layer_in_name(node, "ffn_moe_topk");
    const auto it = il ? graph_.layer_of_number.find(*il) : graph_.layer_of_number.end();
    if (it == graph_.layer_of_number.end()) {
        return false;
    }
    const Layer layer = it->second;
    if (LayerWindow * wanted = window_) {
        wanted->reached(layer);
    }
    const Lock lock(mutex_);
    if (passes_by(layer, int32_t(node->ne[1]))) {
        return false;
    }
    const bool late = may_stop_late(layer);
    hook_.plan_stop(node, layer, late ? graph_.late_stops[size_t(layer)].n_node - 1 : 0);
    return !late;
}

// Return whether llama.cpp may compute the layer without a stop: expert i is in slot i, and nobody reads the choice.
bool PassDriver::may_pass_by(Layer layer) const {
    return !reader_.is_watched() && !stopping_ && layers_ && layers_->core().may_skip(layer);
}

bool PassDriver::may_pass_all_by() const {
    bool may = true;
    for (Layer l = 0; may && l < graph_.shape.n_layer; l++) {
        may = may_pass_by(l);
    }
    return may;
}

// Let llama.cpp compute the layer without a stop if it may.
bool PassDriver::passes_by(Layer layer, int32_t n_token) {
    if (!may_pass_by(layer)) {
        return false;
    }
    n_routed_ = layer + 1;
    try {
        if (layer <= hook_.layer()) {  // llama.cpp computes a batch in parts, and this graph is that of the next part
            layers_->finish();
            hook_.begin_layer(none);
        }
        layers_->walk().tell(Unasked{layer, n_token});
    } catch (const std::exception & e) {
        abort_pass(e.what());
    }
    clock_.sums.n_unasked++;
    return true;
}

// Return whether the stop may come just before the layer's experts. A device then computes the router in one piece. A
// stop at the choice would split a fused kernel, and two kernels round differently. The CPU has no such kernels. At a
// late stop the probabilities of all experts are gone and routing can no longer be forced.
bool PassDriver::may_stop_late(Layer layer) const {
    const LateStop & stop = graph_.late_stops[size_t(layer)];
    return stop.n_node > 1 && layers_->cache().is_own_device(layer) && !late_stops_fail_ && !reader_.is_watched() &&
           (stop.keeps_weights || !layers_->core().wants_weights());
}

// Return whether to stop at this router's mat-mul to read its input. Necessary before a late stop if the input's memory
// is in other use by then. The kernels that devices fuse begin after the mat-mul.
bool PassDriver::stops_for_input(const ggml_tensor * node) {
    const auto it = graph_.layer_of_number.find(layer_of_logits(node).value_or(-1));
    if (it == graph_.layer_of_number.end() || !layers_ || node->ne[1] == 0) {
        return false;
    }
    const Layer layer = it->second;
    if (graph_.late_stops[size_t(layer)].keeps_input || !layers_->core().wants_gate_input() || may_pass_by(layer) ||
        !may_stop_late(layer)) {
        return false;
    }
    input_wanted_ = layer;
    return true;
}

bool PassDriver::computed(ggml_tensor * node) {
    if (std::exchange(checks_, false)) {
        check_.load()->look(node);
        return true;
    }
    const uint64_t began_us = now_us();
    const Lock lock(mutex_);
    bool go_on;
    if (plan_.take_stop(node)) {
        go_on = compute_pieces();
    } else {
        clock_.sums.n_stop++;
        try {
            go_on = stopped(node);
        } catch (const std::exception & e) {
            go_on = abort_pass(e.what());
        }
    }
    clock_.sums.callback_us += now_us() - began_us;
    return go_on;
}

bool PassDriver::stopped(ggml_tensor * node) {
    if (hook_.in_waves()) {
        layers_->keep_inputs(node);
        if (!hook_.segment_ended()) {
            return true;
        }
        layers_->begin_waves();
        return run_layer();
    }
    layers_->finish();
    if (input_wanted_ != none) {
        const Layer layer = std::exchange(input_wanted_, none);
        reader_.read_input(layer, layers_->cache().work(layer));
        return true;
    }
    return routed(hook_.take_choice(), hook_.choice_layer());
}

// Return whether the pass in progress is to end now.
bool PassDriver::stops() { return stopping_ || layers_->cache().pool->stops(); }

bool PassDriver::routed(ggml_tensor * topk, Layer layer) {
    if (stops()) {
        return abort_pass("");
    }
    hook_.begin_layer(layer);
    n_routed_ = layer + 1;
    if (topk->ne[1] == 0) {
        return true;
    }
    Cache & cache = layers_->cache();
    if (topk->ne[1] > cache.options.max_token || topk->ne[0] != graph_.shape.used(layer)) {
        return abort_pass("llama.cpp computed more tokens at once than it was told to");
    }
    reader_.read(topk, layer, cache.work(layer), *cache.core, hook_.stops_late(), hook_.final_weights());
    layers_->route(layer);
    layers_->show_router(layer, layers_->walk().has_all());
    return run_layer();
}

// Do what the layer needs, until llama.cpp is to compute or it needs nothing more. Return false if the pass is to stop.
bool PassDriver::run_layer() {
    while (layers_->next()) {
        if (stops()) {
            return abort_pass("");
        }
        work();
    }
    return true;
}

// Others may look in meanwhile.
void PassDriver::work() {
    LayerDriver & layers = *layers_;
    LayerDriver::Work done;
    {
        const Unlocked unlocked(mutex_);
        done = layers.work();
    }
    layers.worked(done);
}

// End the pass; its results are void. Return false.
bool PassDriver::abort_pass(const std::string & error) {
    hook_.abort();
    error_ = error;
    layers_->abort();
    return false;
}

PatchTimes PassDriver::times() const {
    const Lock lock(mutex_);
    PatchTimes times = clock_.sums;
    times.link_busy_us = layers_ ? layers_->cache().pool->link_busy_us() : 0;
    return times;
}

std::vector<uint64_t> PassDriver::stall_us() const {
    const Lock lock(mutex_);
    return clock_.stall_us();
}

std::vector<uint64_t> PassDriver::wave_us() const {
    const Lock lock(mutex_);
    return clock_.wave_us();
}

std::vector<HostSpeeds> PassDriver::host_speeds() const {
    const Lock lock(mutex_);
    return layers_ && layers_->partner() ? layers_->partner()->speeds() : std::vector<HostSpeeds>();
}

}  // namespace outrider
