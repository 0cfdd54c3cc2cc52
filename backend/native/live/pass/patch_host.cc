// The host's share of a layer that a device computes (core/schedule/host_share.h): begun before the device's
// waves, taken as it comes, and put where the device's rows are.
#include <algorithm>
#include <utility>

#include "live/ggml/clock.h"
#include "live/pass/patch.h"

namespace outrider {
namespace {

// Values of rows that wait to be sent to the device.
constexpr size_t max_waiting = size_t(1) << 18;

// Layers of tokens between two in which the device is waited for.
constexpr int32_t layers_between = 8;

// So many rows tell what a further one takes.
constexpr int32_t n_measured_row = 32;

}  // namespace

void Patch::make_host_work(Hybrid hybrid) {
    host_speeds_.assign(size_t(graph_.shape.n_layer), {});
    speed_meter_ = {};
    last_bytes_ = last_busy_us_ = 0;
    for (const auto & work : works_) {
        if (hybrid == Hybrid::off || ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(work->device()))) {
            continue;
        }
        HostSpeeds speeds{.possible = true, .n_copy = std::max(options_.n_transfer_thread, 1)};
        for (Layer l = 0; l < graph_.shape.n_layer; l++) {
            if (graph_.devices[size_t(l)] != work->device() || layout_.layers[size_t(l)].is_cut()) {
                continue;
            }
            if (!host_work_) {
                mapped_ = std::make_unique<MappedExperts>(graph_.tensors, files_);
                host_work_ = std::make_unique<HostWork>(options_.n_thread, graph_.tensors,
                                                        [pool = pool_.get()] { pool->wake(); });
                speed_meter_.set_host(measure_host(l));
            }
            if (speeds.device_us_per_byte == 0) {
                const KernelSpeed kernels = measure_device(*work, l);
                speeds.device_us_per_byte = kernels.us_per_byte;
                speeds.device_row_us_per_byte = kernels.row_us_per_byte;
            }
            speed_meter_.fill(speeds);
            host_speeds_[size_t(l)] = speeds;
        }
    }
}

// With the device's kernels and the slots of the layer.
KernelSpeed Patch::measure_device(DeviceWork & work, Layer layer) {
    std::vector<ggml_tensor *> slots;
    for (const ExpertTensor & t : graph_.tensors) {
        if (t.layer == layer) {
            slots.push_back(slab_->slots_of(t.tensor, Part::top));
        }
    }
    const double one_us = work.waves().measure(slots, 1);
    const double rows_us = work.waves().measure(slots, n_measured_row);
    return KernelSpeed::of(graph_.shape.expert_bytes(layer), one_us, rows_us, n_measured_row);
}

// With some experts of the layer, where they lie.
KernelSpeed Patch::measure_host(Layer layer) {
    std::vector<ggml_tensor> stacks;
    for (const ExpertTensor & t : graph_.tensors) {
        if (t.layer == layer) {
            ggml_tensor & stack = stacks.emplace_back(plain_header(*t.tensor));
            stack.ne[2] = graph_.shape.n_expert;
            stack.nb[2] = mapped_->stride(layer, t.chunk);
            stack.nb[3] = stack.nb[2] * size_t(stack.ne[2]);
            stack.data = const_cast<uint8_t *>(mapped_->matrix(layer, t.chunk, 0));
        }
    }
    std::vector<ggml_tensor *> of_layer;
    for (ggml_tensor & stack : stacks) {
        of_layer.push_back(&stack);
    }
    host_work_->measure(of_layer, 1);  // has them read
    const double one_us = host_work_->measure(of_layer, 1);
    const double rows_us = host_work_->measure(of_layer, n_measured_row);
    return KernelSpeed::of(graph_.shape.expert_bytes(layer), one_us, rows_us, n_measured_row);
}

// What was measured since the last pass.
void Patch::tell_speeds() {
    if (!host_work_) {
        return;
    }
    uint64_t n_byte = 0;
    for (Layer l = 0; l < graph_.shape.n_layer; l++) {
        n_byte += core_->residency().counts(l).bytes_read;
    }
    const uint64_t busy_us = pool_->link_busy_us();
    speed_meter_.link(n_byte - std::exchange(last_bytes_, n_byte), busy_us - std::exchange(last_busy_us_, busy_us));
    for (HostSpeeds & speeds : host_speeds_) {
        if (speeds.possible) {
            speed_meter_.fill(speeds);
        }
    }
    core_->measured(host_speeds_);
}

void Patch::begin_host() {
    handed_us_ = 0;
    host_pairs_.clear();
    host_rows_.clear();
    if (!for_host_.empty()) {
        host_work_->begin();
    }
}

// Whoever is done first helps the other, and what the host is to compute is begun.
void Patch::balance_host() {
    if (host_work_) {
        core_->caught_up(double(now_us() - routed_us_), commands_);
        obey();
        start_host();
    }
}

void Patch::start_host() {
    if (for_host_.empty()) {
        return;
    }
    std::vector<HostJob> jobs;
    for (const Compute & c : for_host_) {
        HostJob job{c, pairs_of_[size_t(c.expert)], {}};
        // In the store it stays until it is computed, as all that the layer needs.
        const Slot slot = host_ ? core_->host()->find(c.layer, c.expert) : none;
        for (Chunk chunk = 0; chunk < core_->residency().n_chunk(c.layer); chunk++) {
            job.matrices.push_back(slot == none ? mapped_->matrix(c.layer, chunk, c.expert)
                                                : host_->matrix(c.layer, chunk, slot));
        }
        for (Pair & pair : job.pairs) {
            pair.slot = 0;  // the only one
        }
        jobs.push_back(std::move(job));
    }
    for_host_.clear();
    host_work_->start(segment_, std::move(jobs));
}

// What the host was not given yet, or has not begun.
bool Patch::withdraw(const Withdraw & command) {
    const auto is_it = [&](const Compute & c) { return c.expert == command.expert; };
    return std::erase_if(for_host_, is_it) > 0 || host_work_->withdraw(command.expert);
}

// Once the device has all its experts of the layer: whether its side takes as long as was planned. Some devices
// answer before they are done, and are waited for: for a token in few layers, since that keeps llama.cpp from
// giving them the next nodes.
void Patch::note_device_done() {
    if (core_->planned_device_us() == 0 || !ready_.empty() || pool_->n_open() > 0 ||
        (n_token_ == 1 && ++n_unmeasured_ < layers_between)) {
        return;
    }
    n_unmeasured_ = 0;
    float value;
    ggml_backend_tensor_get(segment_.nodes.back(), &value, 0, sizeof value);
    speed_meter_.device(core_->planned_device_us(), double(now_us() - waves_began_us_));
}

// What the host has computed; its rows go to the device some at a time, since they may have to wait there for
// what the device computes.
void Patch::collect_host() {
    if (!host_work_) {
        return;
    }
    while (auto job = host_work_->take()) {
        host_pairs_.insert(host_pairs_.end(), job->pairs.begin(), job->pairs.end());
        host_rows_.insert(host_rows_.end(), job->rows.begin(), job->rows.end());
        times_.host_us += uint64_t(job->us);
        speed_meter_.host(graph_.shape.expert_bytes(layer_), job->pairs.size(), job->us);
        core_->computed(job->compute.layer, job->compute.expert, job->compute.part, commands_);
        obey();
    }
    const bool is_last = !host_work_->busy() && for_host_.empty();
    if (host_pairs_.empty() || (!is_last && host_rows_.size() < max_waiting)) {
        return;
    }
    const uint64_t began_us = now_us();
    work().waves().write_rows(segment_, host_pairs_, host_rows_);
    host_pairs_.clear();
    host_rows_.clear();
    if (is_last) {  // nobody waits for those before
        speed_meter_.handed_over(double(handed_us_ + now_us() - began_us));
    }
}

}  // namespace outrider
