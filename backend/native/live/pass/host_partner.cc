#include "live/pass/host_partner.h"

#include <algorithm>
#include <utility>

#include "live/ggml/clock.h"

namespace outrider {
namespace {

// Rows are written to the device when they have this many values.
constexpr size_t max_waiting = size_t(1) << 18;

// In decoding, the device is measured in one of this many layers.
constexpr int32_t layers_between = 8;

// Rows in the measurement of the cost of a further row.
constexpr int32_t n_measured_row = 32;

template <typename Measure>
KernelSpeed kernel_speed(uint64_t bytes, Measure && measure) {
    const double one_us = measure(1);
    return KernelSpeed::of(bytes, one_us, measure(n_measured_row), n_measured_row);
}

}  // namespace

HostPartner::HostPartner(const MoeGraph & graph, const ExpertFiles & files, Cache & cache)
    : graph_(graph),
      cache_(cache),
      mapped_(graph.tensors, files),
      work_(cache.options.n_thread, graph.tensors, [pool = cache.pool.get()] { pool->wake(); }),
      speeds_(size_t(graph.shape.n_layer)) {}

std::unique_ptr<HostPartner> HostPartner::make(const MoeGraph & graph, const ExpertFiles & files, Cache & cache,
                                               Hybrid hybrid) {
    std::unique_ptr<HostPartner> partner;
    for (const auto & work : cache.works) {
        if (hybrid == Hybrid::off || ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(work->device()))) {
            continue;
        }
        const int32_t n_copy = std::max(cache.options.n_transfer_thread, 1) * int32_t(files.n_drive());
        HostSpeeds speeds{.possible = true, .n_copy = n_copy};
        for (Layer l = 0; l < graph.shape.n_layer; l++) {
            if (graph.devices[size_t(l)] != work->device() || cache.layout.layers[size_t(l)].is_cut()) {
                continue;
            }
            if (!partner) {
                partner.reset(new HostPartner(graph, files, cache));
                partner->meter_.set_host(partner->measure_host(l));
            }
            if (speeds.device_us_per_byte == 0) {
                const KernelSpeed kernels = partner->measure_device(*work, l);
                speeds.device_us_per_byte = kernels.us_per_byte;
                speeds.device_row_us_per_byte = kernels.row_us_per_byte;
            }
            partner->meter_.fill(speeds);
            partner->speeds_[size_t(l)] = speeds;
        }
    }
    return partner;
}

// Measure the device's kernels on the layer's slots.
KernelSpeed HostPartner::measure_device(DeviceWork & work, Layer layer) const {
    std::vector<ggml_tensor *> slots;
    for (const ExpertTensor & t : graph_.tensors) {
        if (t.layer == layer) {
            slots.push_back(cache_.slab->slots_of(t.tensor, Part::top));
        }
    }
    return kernel_speed(graph_.shape.expert_bytes(layer),
                        [&](int32_t n_row) { return work.waves().measure(slots, n_row); });
}

// Measure the CPU's kernels on some of the layer's experts in the mapped file.
KernelSpeed HostPartner::measure_host(Layer layer) {
    std::vector<ggml_tensor> stacks;
    for (const ExpertTensor & t : graph_.tensors) {
        if (t.layer == layer) {
            ggml_tensor & stack = stacks.emplace_back(plain_header(*t.tensor));
            stack.ne[2] = graph_.shape.n_expert;
            stack.nb[2] = mapped_.stride(layer, t.chunk);
            stack.nb[3] = stack.nb[2] * size_t(stack.ne[2]);
            stack.data = const_cast<uint8_t *>(mapped_.matrix(layer, t.chunk, 0));
        }
    }
    std::vector<ggml_tensor *> of_layer;
    for (ggml_tensor & stack : stacks) {
        of_layer.push_back(&stack);
    }
    work_.measure(of_layer, 1);  // reads the pages
    return kernel_speed(graph_.shape.expert_bytes(layer),
                        [&](int32_t n_row) { return work_.measure(of_layer, n_row); });
}

const std::vector<HostSpeeds> & HostPartner::update_speeds() {
    uint64_t n_byte = 0;
    for (Layer l = 0; l < graph_.shape.n_layer; l++) {
        n_byte += cache_.core->residency().counts(l).bytes_read;
    }
    const uint64_t busy_us = cache_.pool->link_busy_us();
    meter_.link(n_byte - std::exchange(last_bytes_, n_byte), busy_us - std::exchange(last_busy_us_, busy_us));
    for (HostSpeeds & speeds : speeds_) {
        if (speeds.possible) {
            meter_.fill(speeds);
        }
    }
    return speeds_;
}

void HostPartner::clear() {
    planned_.clear();
    pairs_.clear();
    rows_.clear();
    handed_us_ = 0;
}

bool HostPartner::withdraw(Expert expert) {
    const auto is_it = [&](const Compute & c) { return c.expert == expert; };
    return std::erase_if(planned_, is_it) > 0 || work_.withdraw(expert);
}

void HostPartner::begin_waves() {
    if (!planned_.empty()) {
        work_.begin();
    }
}

void HostPartner::keep_inputs(const Segment & segment, const ggml_tensor * node) {
    if (!planned_.empty()) {
        const uint64_t began_us = now_us();
        work_.keep_inputs(segment, node);
        handed_us_ += now_us() - began_us;
    }
}

void HostPartner::start(const Segment & segment, const std::vector<std::vector<Pair>> & pairs_of) {
    if (planned_.empty()) {
        return;
    }
    std::vector<HostJob> jobs;
    for (const Compute & c : planned_) {
        HostJob job{c, pairs_of[size_t(c.expert)], {}};
        // The store keeps an expert of the layer in progress until it is computed.
        const Slot slot = cache_.store ? cache_.core->host()->find(c.layer, c.expert) : none;
        for (Chunk chunk = 0; chunk < cache_.core->residency().n_chunk(c.layer); chunk++) {
            job.matrices.push_back(slot == none ? mapped_.matrix(c.layer, chunk, c.expert)
                                                : cache_.store->matrix(c.layer, chunk, slot));
        }
        for (Pair & pair : job.pairs) {
            pair.slot = 0;  // HostWork has one slot
        }
        jobs.push_back(std::move(job));
    }
    planned_.clear();
    work_.start(segment, std::move(jobs));
}

std::optional<HostJob> HostPartner::take() {
    auto job = work_.take();
    if (job) {
        pairs_.insert(pairs_.end(), job->pairs.begin(), job->pairs.end());
        rows_.insert(rows_.end(), job->rows.begin(), job->rows.end());
        meter_.host(graph_.shape.expert_bytes(job->compute.layer), job->pairs.size(), job->us);
    }
    return job;
}

void HostPartner::hand_over(const Segment & segment, WaveRunner & device) {
    const bool is_last = !work_.busy() && planned_.empty();
    if (pairs_.empty() || (!is_last && rows_.size() < max_waiting)) {
        return;
    }
    const uint64_t began_us = now_us();
    device.write_rows(segment, pairs_, rows_);
    pairs_.clear();
    rows_.clear();
    if (is_last) {  // earlier writes overlap with computation
        meter_.handed_over(double(handed_us_ + now_us() - began_us));
    }
}

void HostPartner::device_done(const Segment & segment, int32_t n_token, uint64_t began_us) {
    const double planned_us = cache_.core->planned_device_us();
    if (planned_us == 0 || cache_.pool->n_open() > 0 || (n_token == 1 && ++n_unmeasured_ < layers_between)) {
        return;
    }
    n_unmeasured_ = 0;
    // Some devices answer before they are done. Reading waits for them, and delays the next nodes of llama.cpp.
    float value;
    ggml_backend_tensor_get(segment.nodes.back(), &value, 0, sizeof value);
    meter_.device(planned_us, double(now_us() - began_us));
}

void HostPartner::cancel() {
    work_.cancel();
    planned_.clear();
}

}  // namespace outrider
