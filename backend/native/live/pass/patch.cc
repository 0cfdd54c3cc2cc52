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
    const Lock lock(driver_.mutex);
    // Pinning memory takes long: keep the store where it stays as it is.
    auto kept = driver_.cache() ? driver_.cache()->take_store(n_host_slot) : nullptr;
    // Destroying the old cache ends all that uses its slots; what it left still has their bytes.
    auto old = driver_.take_cache();
    Residents left = old && keeps_residents ? old->take_residents() : Residents();
    if (!kept) {
        left.in_store.clear();
    }
    old.reset();
    events_ = {};
    core->record(keeps_events_ ? &events_ : nullptr);
    driver_.set_cache(std::make_unique<Cache>(graph_, files_, layout, std::move(n_host_slot), options, std::move(core),
                                              std::move(kept), std::move(left)),
                      files_, composition.hybrid);
}

void Patch::close() {
    const Lock lock(driver_.mutex);
    driver_.drop_cache();
}

void Patch::use_scheduler(ggml_backend_sched_t scheduler) {
    const Lock lock(driver_.mutex);
    driver_.set_scheduler(scheduler, callback, this);
}

void Patch::request_began() {
    const Lock lock(driver_.mutex);
    if (const Cache * cache = driver_.cache()) {
        cache->core->handle(RequestBegan{});
    }
    if (driver_.recorder) {
        driver_.recorder->request_began();
    }
}

void Patch::tune(const Tuning & tuning) {
    const Lock lock(driver_.mutex);
    if (const Cache * cache = driver_.cache()) {
        cache->core->handle(Tuned{tuning});
    }
}

bool Patch::stock(const std::vector<std::vector<Expert>> & experts, const std::vector<std::vector<Expert>> & wanted) {
    const Lock lock(driver_.mutex);
    return driver_.cache() && driver_.stock(experts, wanted);
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

void Patch::record(Recorder * recorder) {
    const Lock lock(driver_.mutex);
    driver_.recorder = recorder;
}

void Patch::force(const ForcedRouting * forced) {
    const Lock lock(driver_.mutex);
    driver_.forced = forced;
}

void Patch::record_events(bool wanted) {
    const Lock lock(driver_.mutex);
    keeps_events_ = wanted;
    events_ = {};
    if (const Cache * cache = driver_.cache()) {
        cache->core->record(wanted ? &events_ : nullptr);
    }
}

EventLog Patch::take_events() {
    const Lock lock(driver_.mutex);
    return std::exchange(events_, {});
}

double Patch::measure_link(double seconds, bool by_chunk) {
    const Lock lock(driver_.mutex);
    if (!driver_.cache()) {
        throw std::runtime_error("The expert cache has no memory");
    }
    return outrider::measure_link(*driver_.cache(), graph_.shape, seconds, by_chunk);
}

std::optional<std::pair<int, Expert>> Patch::find_wrong_slot(uint64_t number) const {
    const Lock lock(driver_.mutex);
    const Cache * cache = driver_.cache();
    if (!cache) {
        return std::nullopt;
    }
    const Residency & residency = cache->core->residency();
    std::vector<Copy> ready;
    for (Pool p = 0; p < residency.n_pool(); p++) {
        for (Slot s = 0; s < residency.n_slot(p); s++) {
            const SlotInfo & i = residency.at(p, s);
            if (i.state == SlotState::ready) {
                ready.push_back({0, i.layer, i.expert, i.part, whole_expert, s, Urgency::low});
            }
        }
    }
    if (ready.empty()) {
        return std::nullopt;
    }
    const Copy & chosen = ready[number % ready.size()];
    if (!cache->slab->differs(chosen)) {
        return std::nullopt;
    }
    return std::pair(graph_.numbers[size_t(chosen.layer)], chosen.expert);
}

Layout Patch::layout() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->layout : Layout{};
}

bool Patch::reads_by_ring() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() && driver_.cache()->pool->has_ring();
}

uint64_t Patch::slab_bytes() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->slab->bytes() : 0;
}

uint64_t Patch::kept_bytes() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->kept_bytes : 0;
}

uint64_t Patch::host_bytes() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() && driver_.cache()->store ? driver_.cache()->store->bytes() : 0;
}

bool Patch::host_lacks_pinned() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() && driver_.cache()->store && driver_.cache()->store->lacks_pinned();
}

uint64_t Patch::host_held_bytes() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->host_held_bytes() : 0;
}

std::vector<int32_t> Patch::n_host_slot() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->n_host_slot : std::vector<int32_t>{};
}

std::vector<LayerCounts> Patch::counts() const {
    const Lock lock(driver_.mutex);
    std::vector<LayerCounts> all(size_t(graph_.shape.n_layer));
    for (Layer l = 0; driver_.cache() && l < graph_.shape.n_layer; l++) {
        all[size_t(l)] = driver_.cache()->core->residency().counts(l);
    }
    return all;
}

std::vector<HostCounts> Patch::host_counts() const {
    const Lock lock(driver_.mutex);
    std::vector<HostCounts> all(size_t(graph_.shape.n_layer));
    const HostLevel * host = driver_.cache() ? driver_.cache()->core->host() : nullptr;
    for (Layer l = 0; host && l < graph_.shape.n_layer; l++) {
        all[size_t(l)] = host->counts(l);
    }
    return all;
}

std::vector<uint64_t> Patch::stall_us_by_layer() const {
    const Lock lock(driver_.mutex);
    return driver_.stall_us();
}

std::vector<uint64_t> Patch::wave_us_by_layer() const {
    const Lock lock(driver_.mutex);
    return driver_.wave_us();
}

std::vector<uint8_t> Patch::snapshot() const {
    const Lock lock(driver_.mutex);
    return driver_.cache() ? driver_.cache()->core->snapshot() : std::vector<uint8_t>{};
}

PatchTimes Patch::times() const {
    const Lock lock(driver_.mutex);
    return driver_.times();
}

std::vector<HostSpeeds> Patch::host_speeds() const {
    const Lock lock(driver_.mutex);
    return driver_.partner() ? driver_.partner()->speeds() : std::vector<HostSpeeds>{};
}

}  // namespace outrider
