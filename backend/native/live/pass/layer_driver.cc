#include "live/pass/layer_driver.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {
namespace {

// A stop must be seen even if a drive hangs.
constexpr std::chrono::milliseconds max_wait(50);

}  // namespace

LayerDriver::LayerDriver(const MoeGraph & graph, const ExpertFiles & files, std::unique_ptr<Cache> cache, Hybrid hybrid,
                         GraphHook & hook, RouterReader & reader, PassClock & clock)
    : graph_(graph),
      hook_(hook),
      reader_(reader),
      clock_(clock),
      cache_(std::move(cache)),
      partner_(HostPartner::make(graph, files, *cache_, hybrid)),
      walk_(*cache_->core, *this),
      slot_of_(size_t(graph.shape.n_expert), none),
      pairs_of_(size_t(graph.shape.n_expert)) {}

std::unique_ptr<Cache> LayerDriver::take_cache() {
    partner_.reset();
    return std::move(cache_);
}

void LayerDriver::begin_pass(const PassBegan & event) {
    walk_.begin_pass();
    if (partner_) {
        partner_->pass_ended();
    }
    tell_speeds();
    walk_.tell_of(event);
}

void LayerDriver::route(Layer layer, Walk::Obey when) {
    walk_.begin_layer();
    if (partner_) {
        partner_->clear();
    }
    if (reader_.n_token() > 1) {
        tell_speeds();  // a layer of a prompt takes as long as many tokens
    }
    clock_.routed();
    // Computing the present experts in a wave meanwhile would cost a device more stops than it saves. Experts that
    // are cut are still computed in waves, but in one for each part.
    const bool gathers = !partner_ && cache_->is_own_device(layer);
    walk_.route({layer, reader_.n_token(), reader_.ids(), reader_.weights_for(core())}, gathers, when);
    if (!walk_.has_all()) {
        clock_.lacks_experts(cache_->pool->link_busy_us());
    }
}

void LayerDriver::show_router(Layer layer, bool delays) {
    const auto input = reader_.input();
    if (!input.empty() && core().wants_gate_input()) {
        const uint64_t began_us = now_us();
        walk_.tell(GateSeen{layer, input, int32_t(input.size() / size_t(graph_.n_embd))});
        const uint64_t took_us = now_us() - began_us;
        clock_.sums.predict_us += took_us;
        clock_.sums.delay_us += delays ? took_us : 0;
    }
    reader_.show_recorder(layer);
}

std::span<const int32_t> LayerDriver::slots_of_choice() {
    for (const Compute & c : walk_.computing()) {
        slot_of_[size_t(c.expert)] = c.slot;
    }
    const auto ids = reader_.ids();
    slots_.resize(ids.size());
    std::transform(ids.begin(), ids.end(), slots_.begin(), [&](Expert e) { return slot_of_[size_t(e)]; });
    return slots_;
}

bool LayerDriver::next() {
    const auto step = walk_.next();
    if (partner_ && hook_.in_waves()) {
        partner_->start(hook_.segment(), pairs_of_);
    }
    switch (step) {
        case Walk::Step::slots: remap(); break;
        case Walk::Step::waves: plan_waves(); break;
        case Walk::Step::over: hook_.end_waves(); break;
        case Walk::Step::wait:
        case Walk::Step::wave: return true;
    }
    return false;
}

// All experts are resident: llama.cpp's expert mat-muls read slots.
void LayerDriver::remap() {
    DeviceWork & work = cache_->work(hook_.layer());
    work.set_slot_ids(slots_of_choice(), reader_.n_token());
    hook_.remap(work.slot_ids());
}

// llama.cpp is to skip the layer's experts. They are computed when it reaches them. Sort the layer's (token, expert)
// pairs by expert.
void LayerDriver::plan_waves() {
    hook_.begin_waves();
    cache_->work(hook_.layer()).waves().begin();
    if (partner_) {
        partner_->begin_waves();
    }
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

void LayerDriver::keep_inputs(const ggml_tensor * node) {
    cache_->work(hook_.layer()).waves().keep_inputs(hook_.segment(), node);
    if (partner_) {
        partner_->keep_inputs(hook_.segment(), node);
    }
}

void LayerDriver::begin_waves() {
    hook_.undo();
    for (const ggml_tensor * node : hook_.segment().nodes) {
        keep_inputs(node);
    }
    waves_began_us_ = now_us();
}

LayerDriver::Work LayerDriver::work() {
    const uint64_t began_us = now_us();
    Work work;
    if (!walk_.computing().empty()) {
        WaveRunner & waves = cache_->work(hook_.layer()).waves();
        const bool is_cut = cache_->layout.layers[size_t(hook_.layer())].is_cut();
        for (Part part : places) {  // the top first: a bottom is added to its rows
            run_wave(waves, part, part == Part::bottom && is_cut);
        }
    } else {
        work.host_works = partner_ && partner_->busy();
        if (cache_->pool->n_open() > 0) {
            work.arrival = cache_->pool->wait_arrival(max_wait);
        } else if (work.host_works) {
            partner_->wait(max_wait);
        } else {
            throw std::runtime_error("The expert cache waits for a copy that nobody ordered");
        }
    }
    work.us = now_us() - began_us;
    return work;
}

void LayerDriver::run_wave(WaveRunner & waves, Part part, bool add) {
    wave_.clear();
    for (const Compute & c : walk_.computing()) {
        if (c.part == part) {
            for (Pair pair : pairs_of_[size_t(c.expert)]) {
                pair.slot = c.slot;
                wave_.push_back(pair);
            }
        }
    }
    waves.run(hook_.segment(), wave_, part, add);
}

void LayerDriver::worked(const Work & work) {
    if (walk_.computing().empty()) {
        work.host_works ? clock_.waved(hook_.layer(), work.us) : clock_.stalled(hook_.layer(), work.us);
        clock_.sums.host_wait_us += work.host_works ? work.us : 0;
        walk_.waited(work.arrival ? std::optional(end_of(*work.arrival)) : std::nullopt);
        return;
    }
    clock_.waved(hook_.layer(), work.us);
    clock_.sums.graph_us = clock_.sums.n_graph = 0;
    for (const auto & w : cache_->works) {
        clock_.sums.graph_us += w->waves().graph_us();
        clock_.sums.n_graph += w->waves().n_graph();
    }
    walk_.computed();
    if (partner_ && !walk_.has_ready()) {
        partner_->device_done(hook_.segment(), reader_.n_token(), waves_began_us_);
    }
}

void LayerDriver::finish() {
    hook_.undo();
    walk_.computed();
}

void LayerDriver::abort() {
    if (partner_) {
        partner_->cancel();
    }
    walk_.abort();
}

void LayerDriver::tell_speeds() {
    if (partner_) {
        walk_.tell(Measured{partner_->update_speeds()});
    }
}

CopyEnd LayerDriver::end_of(const Arrival & arrival) {
    if (!arrival.error.empty()) {
        copy_error_ = arrival.error;
    }
    return {arrival.ticket, !arrival.error.empty()};
}

std::optional<CopyEnd> LayerDriver::submit(const Copy & copy, bool is_lost) {
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
    clock_.stalled(copy.layer, now_us() - began_us);
    return end_of(*pool.try_arrival());
}

std::optional<CopyEnd> LayerDriver::take() {
    const auto arrival = cache_->pool->try_arrival();
    return arrival ? std::optional(end_of(*arrival)) : std::nullopt;
}

void LayerDriver::gave_up() { throw std::runtime_error(copy_error_); }

std::optional<Compute> LayerDriver::take_from_host() {
    const auto job = partner_ ? partner_->take() : std::nullopt;
    clock_.sums.host_us += job ? uint64_t(job->us) : 0;
    return job ? std::optional(job->compute) : std::nullopt;
}

std::optional<double> LayerDriver::caught_up_us() {
    if (!partner_) {
        return std::nullopt;
    }
    partner_->hand_over(hook_.segment(), cache_->work(hook_.layer()).waves());
    return clock_.since_routed_us();
}

}  // namespace outrider
