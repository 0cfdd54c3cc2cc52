// Learning a model, making a cache for it, and looking in from outside.
#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

#include "live/pass/patch.h"

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
    filler_.reset();
    slab_.reset();
    host_.reset();
}

void Patch::configure(const Layout & layout, const Composition & composition, const PatchOptions & options) {
    assert(mode_ == Mode::off);
    const Shape & shape = graph_.shape;
    auto n_host_slot = divide_host(options.host_bytes);
    // First: what does not fit together is known before anything is given up.
    auto core = std::make_unique<Core>(
        Surroundings{
            shape, layout, graph_.n_embd, {graph_.routers.begin(), graph_.routers.end()}, future_, statistics_},
        composition, n_host_slot);
    std::lock_guard lock(mutex_);
    drop_cache();
    options_ = options;
    layout_ = layout;
    n_host_slot_ = std::move(n_host_slot);
    if (!n_host_slot_.empty()) {
        host_ = std::make_unique<HostStore>(graph_.tensors, files_, shape, n_host_slot_);
    }
    slab_ = std::make_unique<Slab>(graph_.tensors, files_, shape, layout_, options.repack);
    limit_ = std::make_unique<LinkLimit>(options.link_bytes_per_s);
    file_limit_ = std::make_unique<LinkLimit>(host_ ? options.file_bytes_per_s : 0);
    pool_ = make_pool();
    if (!pool_->has_ring() && options.n_transfer_thread > 0) {
        filler_ = std::make_unique<MemoryFiller>(slab_->memory());
    }
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

// How many experts of each layer the host's memory keeps: of those that a device computes in memory of
// its own. Empty where it keeps none.
std::vector<int32_t> Patch::divide_host(uint64_t n_byte) const {
    std::vector<bool> served;
    for (ggml_backend_dev_t device : graph_.devices) {
        served.push_back(!ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device)));
    }
    auto n_slot = HostLevel::divide(graph_.shape, served, n_byte);
    const bool any = std::any_of(n_slot.begin(), n_slot.end(), [](int32_t n) { return n > 0; });
    return any ? n_slot : std::vector<int32_t>{};
}

// Copies from the file with the kernel's own queue for reads where that can be, otherwise with threads;
// and from the host's memory to devices.
std::unique_ptr<Transfers> Patch::make_pool() const {
    const Slab * slab = slab_.get();
    const HostStore * host = host_.get();
    // Copies that are read together all go to the same level.
    const auto target = [slab, host](const Copy & c) -> const Slab & {
        return c.route == Route::file_to_host ? host->slab() : *slab;
    };
    CopyWork read;
    read.bytes = [target](const Copy & c) { return target(c).bytes_of(c); };
    read.joins = [target](const Copy & a, const Copy & b) { return a.route == b.route && target(a).joins(a, b); };
    read.copy = [target, bytes = read.bytes, link = limit_.get(),
                 file = file_limit_.get()](std::span<const Copy> copies) {
        uint64_t n_byte = 0;
        for (const Copy & c : copies) {
            n_byte += bytes(c);
        }
        auto end = file->reserve(n_byte);
        if (copies.front().route == Route::file_to_slot) {
            end = std::max(end, link->reserve(n_byte));
        }
        target(copies.front()).fill(copies);
        LinkLimit::wait_until(end);
    };
    read.max_joined_bytes = options_.joined_bytes;
    read.reads = [slab](std::span<const Copy> copies, auto & reads) { slab->reads(copies, reads); };
    std::unique_ptr<ReadRing> ring;
    if (options_.ring && options_.n_transfer_thread > 0 && options_.link_bytes_per_s <= 0 && slab_->in_blocks()) {
        ring = ReadRing::open(n_ring_entry);
    }
    if (ring) {
        ring->keep(slab_->memory());
    }
    Transfers::Store store;
    if (host) {
        for (const auto & chunks : graph_.shape.chunk_bytes) {
            store.n_chunk.push_back(int32_t(chunks.size()));
        }
        store.n_slot = n_host_slot_;
        store.send.copy = [slab, host, link = limit_.get()](std::span<const Copy> copies) {
            for (const Copy & c : copies) {
                const auto end = link->reserve(slab->bytes_of(c));
                slab->send(c, *host);
                LinkLimit::wait_until(end);
            }
        };
        store.n_sending = 0;
        for (const auto & stream : host->streams()) {
            store.n_sending += stream->n_sender();
        }
    }
    return std::make_unique<Transfers>(options_.n_transfer_thread, std::move(read), std::move(ring), std::move(store));
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

std::vector<HostCounts> Patch::host_counts() const {
    std::lock_guard lock(mutex_);
    std::vector<HostCounts> all(size_t(graph_.shape.n_layer));
    for (Layer l = 0; core_ && core_->host() && l < graph_.shape.n_layer; l++) {
        all[size_t(l)] = core_->host()->counts(l);
    }
    return all;
}

uint64_t Patch::host_held_bytes() const {
    if (!host_ || host_->is_pinned()) {
        return host_ ? host_->bytes() : 0;
    }
    uint64_t n_read = 0;  // what was never written to is not there
    for (const HostCounts & counts : host_counts()) {
        n_read += counts.bytes_read;
    }
    return std::min(n_read, host_->bytes());
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
    times.link_busy_us = pool_ ? pool_->link_busy_us() : 0;
    times.file_busy_us = pool_ ? pool_->file_busy_us() : 0;
    return times;
}

std::vector<HostSpeeds> Patch::host_speeds() const {
    std::lock_guard lock(mutex_);
    return host_work_ ? host_speeds_ : std::vector<HostSpeeds>{};
}

}  // namespace outrider
