#include "live/memory/host_store.h"

#include <algorithm>

namespace outrider {

HostStore::HostStore(const std::vector<ExpertTensor> & tensors, const ExpertFiles & files, const Shape & shape,
                     const std::vector<int32_t> & n_slot)
    : homes_(size_t(shape.n_layer)), stream_of_(size_t(shape.n_layer), nullptr) {
    std::vector<int32_t> at_least_one;
    for (const int32_t n : n_slot) {
        at_least_one.push_back(
            std::max(n, 1));  // a layout needs slots in every layer; without tensors they take no memory
    }
    std::vector<ExpertTensor> kept;
    for (const ExpertTensor & t : tensors) {
        if (n_slot[size_t(t.layer)] == 0) {
            continue;
        }
        ExpertTensor own = t;
        own.tensor = headers_.emplace_back(std::make_unique<ggml_tensor>(*t.tensor)).get();
        own.tensor->extra = nullptr;  // belongs to the device's buffer
        own.memory = ggml_backend_dev_host_buffer_type(t.device);
        is_pinned_ = is_pinned_ && own.memory != nullptr;
        if (!own.memory) {
            own.memory = ggml_backend_cpu_buffer_type();
        }
        slots_[t.tensor] = own.tensor;
        auto & homes = homes_[size_t(t.layer)];
        homes.resize(std::max(homes.size(), size_t(t.chunk) + 1));
        homes[size_t(t.chunk)] = {own.tensor, t.expert_bytes};
        stream_of_[size_t(t.layer)] = stream_for(t.device);
        kept.push_back(own);
    }
    slab_ = std::make_unique<Slab>(kept, files, shape, Layout::per_layer(at_least_one), false);
    is_pinned_ = is_pinned_ && slab_->has_memory_asked_for();
}

CopyStream * HostStore::stream_for(ggml_backend_dev_t device) {
    for (const auto & stream : streams_) {
        if (stream->device() == device) {
            return stream.get();
        }
    }
    return streams_.emplace_back(std::make_unique<CopyStream>(device)).get();
}

ggml_tensor * HostStore::slots_of(const ggml_tensor * own) const {
    const auto it = slots_.find(own);
    return it == slots_.end() ? nullptr : it->second;
}

const uint8_t * HostStore::matrix(Layer layer, Chunk chunk, Slot slot) const {
    const ggml_tensor * slots = homes_[size_t(layer)][size_t(chunk)].slots;
    return static_cast<const uint8_t *>(slots->data) + size_t(slot) * slots->nb[2];
}

}  // namespace outrider
