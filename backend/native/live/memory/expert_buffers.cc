#include "live/memory/expert_buffers.h"

#include <algorithm>
#include <atomic>

#include "live/io/reserve.h"

namespace outrider {
namespace {

ExpertBuffers & self(ggml_backend_buffer_type_t buft) { return *static_cast<ExpertBuffers *>(buft->context); }

}  // namespace

ExpertBuffers::ExpertBuffers(bool unread) : unread_(unread) {
    static std::atomic<int> n_before = 0;
    name_ = "Outrider_Experts" + std::to_string(n_before++);  // types of one name are one type to llama.cpp
    type_.iface.get_name = [](ggml_backend_buffer_type_t buft) { return self(buft).name_.c_str(); };
    type_.iface.alloc_buffer = [](ggml_backend_buffer_type_t buft, size_t size) -> ggml_backend_buffer_t {
        void * address = reserve_address_space(size);
        if (!address) {
            return nullptr;
        }
        if (!self(buft).unread_ && !let_system_write(address, size)) {  // llama.cpp reads a file into it
            release_address_space(address, size);
            return nullptr;
        }
        self(buft).regions_.push_back({address, size});
        return ggml_backend_cpu_buffer_from_ptr(address, size);
    };
    type_.iface.get_alignment = [](ggml_backend_buffer_type_t) {
        return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
    };
    type_.iface.get_alloc_size = [](ggml_backend_buffer_type_t buft, const ggml_tensor * tensor) {
        // llama.cpp calls this at least once for every tensor before it places it.
        auto & tensors = self(buft).tensors_;
        auto * t = const_cast<ggml_tensor *>(tensor);
        if (std::find(tensors.begin(), tensors.end(), t) == tensors.end()) {
            tensors.push_back(t);
            self(buft).names_.push_back(t->name);
            if (self(buft).unread_) {
                ggml_set_name(t, "outrider.unread");
            }
        }
        return ggml_nbytes(tensor);
    };
    type_.iface.is_host = [](ggml_backend_buffer_type_t) { return true; };
    type_.device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    type_.context = this;
}

void ExpertBuffers::loaded() {
    for (size_t i = 0; i < tensors_.size(); i++) {
        ggml_set_name(tensors_[i], names_[i].c_str());
    }
}

ExpertBuffers::~ExpertBuffers() {
    for (const Region & r : regions_) {
        release_address_space(r.address, r.size);
    }
}

}  // namespace outrider
