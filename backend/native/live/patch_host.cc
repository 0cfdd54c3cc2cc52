// The host's share of a layer that a device computes (core/schedule/host_share.h): begun before the device's
// waves, taken as it comes, and put where the device's rows are.
#include <algorithm>
#include <utility>

#include "patch.h"

namespace outrider {
namespace {

// Values of rows that wait to be sent to the device.
constexpr size_t max_waiting = size_t(1) << 18;

// So many rows tell what a further one takes.
constexpr int32_t n_measured_row = 16;

uint64_t now_us() { return uint64_t(ggml_time_us()); }

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
            if (graph_.devices[size_t(l)] == work->device() && !layout_.layers[size_t(l)].is_cut()) {
                if (speeds.device_us_per_byte == 0) {
                    measure_device(*work, l, speeds);
                }
                host_speeds_[size_t(l)] = speeds;
            }
        }
    }
    if (std::any_of(host_speeds_.begin(), host_speeds_.end(), [](const HostSpeeds & s) { return s.possible; })) {
        mapped_ = std::make_unique<MappedExperts>(graph_.tensors, files_);
        host_work_ =
            std::make_unique<HostWork>(options_.n_thread, graph_.tensors, [pool = pool_.get()] { pool->wake(); });
    }
}

// With the kernels and the slots of the layer.
void Patch::measure_device(DeviceWork & work, Layer layer, HostSpeeds & speeds) {
    std::vector<ggml_tensor *> slots;
    for (const ExpertTensor & t : graph_.tensors) {
        if (t.layer == layer) {
            slots.push_back(slab_->slots_of(t.tensor, Part::top));
        }
    }
    const double one_us = work.waves().measure(slots, 1);
    const double rows_us = work.waves().measure(slots, n_measured_row);
    SpeedMeter::set_device(speeds, graph_.shape.expert_bytes(layer), one_us, rows_us, n_measured_row);
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
    const uint64_t busy_us = pool_->busy_us();
    speed_meter_.link(n_byte - std::exchange(last_bytes_, n_byte), busy_us - std::exchange(last_busy_us_, busy_us));
    speed_meter_.pass_ended();
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

void Patch::start_host() {
    if (for_host_.empty()) {
        return;
    }
    std::vector<HostJob> jobs;
    for (const Compute & c : for_host_) {
        HostJob job{c, pairs_of_[size_t(c.expert)], {}};
        for (Chunk chunk = 0; chunk < core_->residency().n_chunk(c.layer); chunk++) {
            job.matrices.push_back(mapped_->matrix(c.layer, chunk, c.expert));
        }
        for (Pair & pair : job.pairs) {
            pair.slot = 0;  // the only one
        }
        jobs.push_back(std::move(job));
    }
    for_host_.clear();
    host_work_->start(segment_, std::move(jobs));
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
    const bool is_last = !host_work_->busy();
    if (host_pairs_.empty() || (!is_last && host_rows_.size() < max_waiting)) {
        return;
    }
    const uint64_t began_us = now_us();
    work().waves().write_rows(segment_, host_pairs_, host_rows_);
    handed_us_ += now_us() - began_us;
    host_pairs_.clear();
    host_rows_.clear();
    if (is_last) {
        speed_meter_.handed_over(double(handed_us_));
    }
}

}  // namespace outrider
