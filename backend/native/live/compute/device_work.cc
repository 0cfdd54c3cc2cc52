#include "live/compute/device_work.h"

#include <stdexcept>

#include "live/memory/slab.h"

namespace outrider {

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
}

void DeviceWork::set_slot_ids(std::span<const int32_t> slots, int32_t n_token) {
    slot_ids_->ne[1] = n_token;
    slot_ids_->nb[2] = slot_ids_->nb[3] = slot_ids_->nb[1] * size_t(n_token);
    ggml_backend_tensor_set(slot_ids_, slots.data(), 0, slots.size_bytes());
}

void DeviceWork::read(const ggml_tensor * tensor, void * to, size_t n_byte) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    const bool is_own = ggml_backend_supports_buft(waves_.backend(), ggml_backend_buffer_get_type(buffer));
    if (ggml_backend_buffer_is_host(buffer) || !is_own) {
        ggml_backend_tensor_get(tensor, to, 0, n_byte);
        return;
    }
    ggml_backend_tensor_get_async(waves_.backend(), tensor, to, 0, n_byte);
    reading_ = true;
}

void DeviceWork::end_reads() {
    if (reading_) {
        ggml_backend_synchronize(waves_.backend());
        reading_ = false;
    }
}

}  // namespace outrider
