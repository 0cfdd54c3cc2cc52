#include "live/compute/device_work.h"

#include <cstring>
#include <stdexcept>

#include "live/ggml/devices.h"
#include "live/memory/slab.h"

namespace outrider {
namespace {

// Reads of more bytes than this take longer than the stop that they would save.
constexpr size_t max_staged_bytes = 256 << 10;
constexpr size_t staging_alignment = 64;  // bytes

}  // namespace

DeviceWork::DeviceWork(ggml_backend_dev_t device, int n_thread, int32_t n_expert_used, int32_t max_token,
                       WaveRunner::SlotsOf slots_of)
    : device_(device),
      // A device's memory is planned, so reserve it; the host's is watched.
      waves_(device, n_thread,
             ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device))
                 ? 0
                 : size_t(n_expert_used) * size_t(max_token),
             std::move(slots_of)),
      slot_ids_(ggml_new_tensor_2d(ids_context_.get(), GGML_TYPE_I32, n_expert_used, max_token)) {
    ids_buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(ids_context_.get(), ggml_backend_dev_buffer_type(device)));
    if (!ids_buffer_) {
        throw std::runtime_error(no_memory);
    }
    if (!ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(device))) {
        slots_staging_ = pinned_memory(device, ggml_nbytes(slot_ids_));
        read_staging_ = pinned_memory(device, max_staged_bytes);
        if (!slots_staging_ || !read_staging_) {
            throw std::runtime_error(no_memory);
        }
    }
}

void DeviceWork::use_scheduler(ggml_backend_sched_t scheduler) {
    ggml_backend_t found = nullptr;
    for (int i = 0; scheduler && read_staging_ && i < ggml_backend_sched_get_n_backends(scheduler); i++) {
        const auto backend = ggml_backend_sched_get_backend(scheduler, i);
        found = ggml_backend_get_device(backend) == device_ ? backend : found;
    }
    waves_.use_stream(found);
}

void DeviceWork::set_slot_ids(std::span<const int32_t> slots, int32_t n_token) {
    slot_ids_->ne[0] = int64_t(slots.size()) / n_token;
    slot_ids_->ne[1] = n_token;
    slot_ids_->nb[1] = slot_ids_->nb[0] * size_t(slot_ids_->ne[0]);
    slot_ids_->nb[2] = slot_ids_->nb[3] = slot_ids_->nb[1] * size_t(n_token);
    // Nothing uses the staging memory: llama.cpp has waited for its backend since the last stop.
    waves_.send(slot_ids_, slots, slots_staging_.get());
}

void DeviceWork::read(const ggml_tensor * tensor, void * to, size_t n_byte) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    const bool is_own = ggml_backend_supports_buft(waves_.stream(), ggml_backend_buffer_get_type(buffer));
    if (ggml_backend_buffer_is_host(buffer) || !is_own) {
        ggml_backend_tensor_get(tensor, to, 0, n_byte);
        return;
    }
    if (read_staging_ && n_staged_ + n_byte <= max_staged_bytes) {
        auto * staged = static_cast<uint8_t *>(ggml_backend_buffer_get_base(read_staging_.get())) + n_staged_;
        n_staged_ += GGML_PAD(n_byte, staging_alignment);
        reads_.push_back({to, staged, n_byte});
        to = staged;
    }
    ggml_backend_tensor_get_async(waves_.stream(), tensor, to, 0, n_byte);
    reading_ = true;
}

void DeviceWork::end_reads() {
    if (!reading_) {
        return;
    }
    ggml_backend_synchronize(waves_.stream());
    for (const Read & r : reads_) {
        std::memcpy(r.to, r.staged, r.n_byte);
    }
    reads_.clear();
    n_staged_ = 0;
    reading_ = false;
}

}  // namespace outrider
