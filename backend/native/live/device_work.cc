#include "device_work.h"

#include <stdexcept>

namespace outrider {

DeviceWork::DeviceWork(ggml_backend_dev_t device, int n_thread, int32_t n_expert_used, int32_t max_token,
                       WaveRunner::SlotsOf slots_of)
    : device_(device), waves_(device, n_thread, std::move(slots_of)) {
    ids_context_ = ggml_init({ggml_tensor_overhead() * 2, nullptr, true});
    slot_ids_ = ggml_new_tensor_2d(ids_context_, GGML_TYPE_I32, n_expert_used, max_token);
    ids_buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(ids_context_, ggml_backend_dev_buffer_type(device));
    if (!ids_buffer_) {
        ggml_free(ids_context_);
        throw std::runtime_error("There is not enough memory for the expert cache");
    }
}

DeviceWork::~DeviceWork() {
    ggml_backend_buffer_free(ids_buffer_);
    ggml_free(ids_context_);
}

void DeviceWork::set_slot_ids(std::span<const int32_t> slots, int32_t n_token) {
    slot_ids_->ne[1] = n_token;
    slot_ids_->nb[2] = slot_ids_->nb[3] = slot_ids_->nb[1] * size_t(n_token);
    ggml_backend_tensor_set(slot_ids_, slots.data(), 0, slots.size_bytes());
}

}  // namespace outrider
