#include "live/pass/patch.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "live/pass/link_probe.h"

namespace outrider {

bool Patch::callback(ggml_tensor * node, bool ask, void * self) {
    auto & patch = *static_cast<Patch *>(self);
    if (patch.probe_) {
        patch.probe_->see(node);
        return false;
    }
    return ask ? patch.driver_.ask(node) : patch.driver_.computed(node);
}

void Patch::begin_probe() { probe_ = std::make_unique<Probe>(files_, buffers_); }

std::string Patch::end_probe() {
    std::string objection;
    graph_ = probe_->result(objection);
    probe_.reset();
    return objection;
}

void Patch::configure(const Layout & layout, const Composition & composition, const PatchOptions & options,
                      bool keeps_residents) {
    auto n_host_slot = divide_host(graph_, options.host_bytes);
    // First: this throws if the parts do not fit together.
    auto core = std::make_unique<Core>(Surroundings{graph_.shape,
                                                    layout,
                                                    graph_.n_embd,
                                                    {graph_.routers.begin(), graph_.routers.end()},
                                                    future_,
                                                    statistics_,
                                                    graph_.router_biases,
                                                    {graph_.token_experts.begin(), graph_.token_experts.end()}},
                                       composition, n_host_slot);
    Core & made = *core;
    const auto make = [&](std::unique_ptr<Cache> old) {
        // Pinning memory takes long: keep the store where it stays as it is.
        auto kept = old ? old->take_store(n_host_slot) : nullptr;
        // Destroying the old cache ends all users of its slots; the memory that it leaves still has their bytes.
        Residents left = old && keeps_residents ? old->take_residents() : Residents();
        if (!kept) {
            left.in_store.clear();
        }
        old.reset();
        return std::make_unique<Cache>(graph_, files_, layout, std::move(n_host_slot), options, std::move(core),
                                       std::move(kept), std::move(left));
    };
    driver_.replace_cache(made, make, files_, composition.hybrid);
}

void Patch::close() { driver_.drop_cache(); }

void Patch::use_scheduler(ggml_backend_sched_t scheduler) { driver_.use_scheduler(scheduler, callback, this); }

void Patch::tune(const Tuning & tuning) {
    driver_.of_cache([&](Cache & cache) { cache.core->handle(Tuned{tuning}); });
}

void Patch::begin_pass(Phase phase, const std::vector<int32_t> & tokens, const std::vector<int32_t> & sequences) {
    if (probe_) {
        probe_->pass_began();
    } else {
        driver_.begin_pass(phase, tokens, sequences);
    }
}

bool Patch::end_pass() {
    probe_error_ = probe_ ? probe_->pass_ended() : "";
    return probe_ ? probe_error_.empty() : driver_.end_pass();
}

double Patch::measure_link(double seconds, bool by_chunk) {
    const auto speed = driver_.of_cache(
        [&](Cache & cache) { return std::optional(outrider::measure_link(cache, graph_.shape, seconds, by_chunk)); });
    if (!speed) {
        throw std::runtime_error("The expert cache has no memory");
    }
    return *speed;
}

std::optional<std::pair<int, Expert>> Patch::find_wrong_slot(uint64_t number) const {
    return driver_.of_cache([&](const Cache & cache) -> std::optional<std::pair<int, Expert>> {
        const Residency & residency = cache.core->residency();
        std::vector<Copy> ready;
        for (Pool p = 0; p < residency.n_pool(); p++) {
            for (Slot s = 0; s < residency.n_slot(p); s++) {
                const SlotInfo & i = residency.at(p, s);
                if (i.state == SlotState::ready) {
                    ready.push_back({0, i.layer, i.expert, i.part, whole_expert, s, Urgency::low});
                }
            }
        }
        if (ready.empty() || !cache.slab->differs(ready[number % ready.size()])) {
            return std::nullopt;
        }
        const Copy & chosen = ready[number % ready.size()];
        return std::pair(graph_.numbers[size_t(chosen.layer)], chosen.expert);
    });
}

Layout Patch::layout() const {
    return driver_.of_cache([](const Cache & cache) { return cache.layout; });
}

bool Patch::reads_by_ring() const {
    return driver_.of_cache([](const Cache & cache) { return cache.pool->has_ring(); });
}

uint64_t Patch::slab_bytes() const {
    return driver_.of_cache([](const Cache & cache) { return cache.slab->bytes(); });
}

uint64_t Patch::kept_bytes() const {
    return driver_.of_cache([](const Cache & cache) { return cache.kept_bytes; });
}

uint64_t Patch::host_bytes() const {
    return driver_.of_cache([](const Cache & cache) { return cache.store ? cache.store->bytes() : 0; });
}

bool Patch::host_lacks_pinned() const {
    return driver_.of_cache([](const Cache & cache) { return cache.store && cache.store->lacks_pinned(); });
}

uint64_t Patch::host_held_bytes() const {
    return driver_.of_cache([](const Cache & cache) { return cache.host_held_bytes(); });
}

std::vector<int32_t> Patch::n_host_slot() const {
    return driver_.of_cache([](const Cache & cache) { return cache.n_host_slot; });
}

std::vector<LayerCounts> Patch::counts() const {
    std::vector<LayerCounts> all(size_t(graph_.shape.n_layer));
    driver_.of_cache([&](const Cache & cache) {
        for (Layer l = 0; l < graph_.shape.n_layer; l++) {
            all[size_t(l)] = cache.core->residency().counts(l);
        }
    });
    return all;
}

std::vector<HostCounts> Patch::host_counts() const {
    std::vector<HostCounts> all(size_t(graph_.shape.n_layer));
    driver_.of_cache([&](const Cache & cache) {
        const HostLevel * host = std::as_const(*cache.core).host();
        for (Layer l = 0; host && l < graph_.shape.n_layer; l++) {
            all[size_t(l)] = host->counts(l);
        }
    });
    return all;
}

std::vector<uint8_t> Patch::snapshot() const {
    return driver_.of_cache([](const Cache & cache) { return cache.core->snapshot(); });
}

}  // namespace outrider
