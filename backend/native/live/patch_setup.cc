// Learning a model, making a cache for it, and looking in from outside.
#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

#include "patch.h"

namespace outrider {
namespace {

constexpr unsigned n_ring_entry = 256;  // reads of single matrices

}  // namespace

Patch::Patch(const ExpertFiles & files, ExpertBuffers & buffers) : files_(files), buffers_(buffers) {}

Patch::~Patch() { close(); }

void Patch::begin_probe() {
    probe_ = std::make_unique<Probe>(files_, buffers_);
    mode_ = Mode::probing;
}

std::string Patch::end_probe() {
    std::string objection;
    graph_ = probe_->result(objection);
    probe_.reset();
    mode_ = Mode::off;
    return objection;
}

void Patch::close() {
    std::lock_guard lock(mutex_);
    drop_cache();
}

void Patch::drop_cache() {
    host_work_.reset();  // before the pool, which it wakes
    mapped_.reset();
    pool_.reset();       // before the memory that it writes to
    core_.reset();
    works_.clear();
    slab_.reset();
}

void Patch::configure(const Layout & layout, const Composition & composition, const PatchOptions & options) {
    assert(mode_ == Mode::off);
    const Shape & shape = graph_.shape;
    // First: what does not fit together is known before anything is given up.
    auto core = std::make_unique<Core>(
        Surroundings{
            shape, layout, graph_.n_embd, {graph_.routers.begin(), graph_.routers.end()}, future_, statistics_},
        composition);
    std::lock_guard lock(mutex_);
    drop_cache();
    options_ = options;
    layout_ = layout;
    slab_ = std::make_unique<Slab>(graph_.tensors, files_, shape, layout_, options.repack);
    limit_ = std::make_unique<LinkLimit>(options.link_bytes_per_s);
    pool_ = make_pool();
    stall_us_.assign(size_t(shape.n_layer), 0);
    wave_us_.assign(size_t(shape.n_layer), 0);
    times_ = {};
    pairs_of_.assign(size_t(shape.n_expert), {});
    slot_of_.assign(size_t(shape.n_expert), none);
    logits_.assign(size_t(shape.n_layer), nullptr);
    probabilities_of_.assign(size_t(shape.n_layer), nullptr);
    make_device_work();
    make_host_work(composition.hybrid);
    // Last: a patch with a core is a whole one.
    core_ = std::move(core);
    events_ = {};
    core_->record(keeps_events_ ? &events_ : nullptr);
}

// Copies with the kernel's own queue for reads where that can be, otherwise with threads.
std::unique_ptr<TransferPool> Patch::make_pool() const {
    CopyWork work;
    work.copy = [slab = slab_.get(), limit = limit_.get()](std::span<const Copy> copies) {
        uint64_t n_byte = 0;
        for (const Copy & c : copies) {
            n_byte += slab->bytes_of(c);
        }
        const auto end = limit->reserve(n_byte);
        slab->fill(copies);
        LinkLimit::wait_until(end);
    };
    work.joins = [slab = slab_.get()](const Copy & a, const Copy & b) { return slab->joins(a, b); };
    work.bytes = [slab = slab_.get()](const Copy & c) { return slab->bytes_of(c); };
    work.max_joined_bytes = options_.joined_bytes;
    work.reads = [slab = slab_.get()](std::span<const Copy> copies, auto & reads) { slab->reads(copies, reads); };
    std::unique_ptr<ReadRing> ring;
    if (options_.ring && options_.n_transfer_thread > 0 && options_.link_bytes_per_s <= 0 && slab_->in_blocks()) {
        ring = ReadRing::open(n_ring_entry);
    }
    if (ring) {
        ring->keep(slab_->memory());
    }
    return std::make_unique<TransferPool>(options_.n_transfer_thread, std::move(work), std::move(ring));
}

void Patch::make_device_work() {
    work_of_.clear();
    for (ggml_backend_dev_t device : graph_.devices) {
        auto it = std::find_if(works_.begin(), works_.end(), [&](const auto & w) { return w->device() == device; });
        if (it == works_.end()) {
            works_.push_back(std::make_unique<DeviceWork>(
                device, options_.n_thread, graph_.shape.n_expert_used, options_.max_token,
                [this](const ggml_tensor * t, Part part) { return slab_->slots_of(t, part); }));
            it = works_.end() - 1;
        }
        work_of_.push_back(it->get());
    }
}

void Patch::record(Recorder * recorder) {
    std::lock_guard lock(mutex_);
    recorder_ = recorder;
}

void Patch::force(const ForcedRouting * forced) {
    std::lock_guard lock(mutex_);
    forced_ = forced;
}

void Patch::record_events(bool wanted) {
    std::lock_guard lock(mutex_);
    keeps_events_ = wanted;
    events_ = {};
    if (core_) {
        core_->record(wanted ? &events_ : nullptr);
    }
}

EventLog Patch::take_events() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
}

std::vector<LayerCounts> Patch::counts() const {
    std::lock_guard lock(mutex_);
    std::vector<LayerCounts> all;
    for (Layer l = 0; l < graph_.shape.n_layer; l++) {
        all.push_back(core_ ? core_->residency().counts(l) : LayerCounts{});
    }
    return all;
}

std::vector<uint64_t> Patch::stall_us_by_layer() const {
    std::lock_guard lock(mutex_);
    return stall_us_;
}

std::vector<uint64_t> Patch::wave_us_by_layer() const {
    std::lock_guard lock(mutex_);
    return wave_us_;
}

std::vector<uint8_t> Patch::snapshot() const {
    std::lock_guard lock(mutex_);
    return core_ ? core_->snapshot() : std::vector<uint8_t>{};
}

PatchTimes Patch::times() const {
    std::lock_guard lock(mutex_);
    PatchTimes times = times_;
    times.link_busy_us = pool_ ? pool_->busy_us() : 0;
    return times;
}

std::vector<HostSpeeds> Patch::host_speeds() const {
    std::lock_guard lock(mutex_);
    return host_work_ ? host_speeds_ : std::vector<HostSpeeds>{};
}

}  // namespace outrider
