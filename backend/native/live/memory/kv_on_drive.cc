#include "live/memory/kv_on_drive.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "live/ggml/ggml_abi.h"
#include "live/ggml/thread_safety.h"
#include "live/io/file_pages.h"

namespace outrider {
namespace {

constexpr uintptr_t kPage = 1 << 16;  // of every system, or a multiple

struct Kept {
    ggml_backend_buffer_i before;  // the buffer's own functions
    std::unique_ptr<FilePages> pages;
    std::vector<std::pair<std::string, PageRange>> tensors;  // without a file
};

}  // namespace

// The buffers that may be, or are, in files, and the functions that llama.cpp calls for them.
struct KvBuffers {
    Mutex mutex;
    KvOnDrive * present GUARDED_BY(mutex) = nullptr;
    std::thread::id thread GUARDED_BY(mutex);
    ggml_backend_buffer_t (*allocate)(ggml_backend_buffer_type_t, size_t) GUARDED_BY(mutex) = nullptr;
    std::unordered_map<ggml_backend_buffer_t, Kept> kept GUARDED_BY(mutex);
    std::vector<ggml_backend_buffer_t> placed GUARDED_BY(mutex);  // since begin()

    static KvBuffers & all() {
        static KvBuffers buffers;
        return buffers;
    }

    void begin(KvOnDrive * drive) {
        const Lock lock(mutex);
        if (present != nullptr) {
            throw std::logic_error("Another attention cache is being placed on a drive.");
        }
        present = drive;
        placed.clear();
        thread = std::this_thread::get_id();
        allocate = ggml_backend_cpu_buffer_type()->iface.alloc_buffer;
        ggml_backend_cpu_buffer_type()->iface.alloc_buffer = [](ggml_backend_buffer_type_t type, size_t size) {
            return all().allocated(type, size);
        };
    }

    void end(KvOnDrive * drive) {
        const Lock lock(mutex);
        if (present == drive) {
            present = nullptr;
            ggml_backend_cpu_buffer_type()->iface.alloc_buffer = allocate;
        }
    }

    ggml_backend_buffer_t allocated(ggml_backend_buffer_type_t type, size_t size) {
        const Lock lock(mutex);
        ggml_backend_buffer_t buffer = allocate(type, size);
        const bool is_ours = present != nullptr && thread == std::this_thread::get_id() && size >= present->n_byte_min_;
        if (buffer != nullptr && is_ours) {
            kept[buffer] = {buffer->iface, nullptr, {}};
            placed.push_back(buffer);
            buffer->iface.init_tensor = [](ggml_backend_buffer_t b, ggml_tensor * t) { return all().placed_in(b, t); };
            buffer->iface.clear = [](ggml_backend_buffer_t b, uint8_t value) { all().clear(b, value); };
            buffer->iface.free_buffer = [](ggml_backend_buffer_t b) { all().free(b); };
        }
        return buffer;
    }

    ggml_status placed_in(ggml_backend_buffer_t buffer, ggml_tensor * tensor) {
        const Lock lock(mutex);
        Kept & one = kept.at(buffer);
        if (tensor->view_src == nullptr) {
            const auto address = reinterpret_cast<uintptr_t>(tensor->data);
            one.tensors.push_back({tensor->name, {address, ggml_nbytes(tensor)}});
        }
        return one.before.init_tensor ? one.before.init_tensor(buffer, tensor) : GGML_STATUS_SUCCESS;
    }

    std::vector<std::pair<std::string, PageRange>> tensors() {
        const Lock lock(mutex);
        std::vector<std::pair<std::string, PageRange>> found;
        for (const ggml_backend_buffer_t buffer : placed) {
            const auto it = kept.find(buffer);
            if (it == kept.end() || !it->second.pages) {
                continue;
            }
            for (const auto & [name, range] : it->second.tensors) {
                found.push_back({name, it->second.pages->part(range.address, range.n)});
            }
        }
        return found;
    }

    void clear(ggml_backend_buffer_t buffer, uint8_t value) {
        const Lock lock(mutex);
        Kept & one = kept.at(buffer);
        auto * base = static_cast<uint8_t *>(one.before.get_base(buffer));
        const auto from = reinterpret_cast<uintptr_t>(base), to = from + buffer->size;
        const uintptr_t first = (from + kPage - 1) / kPage * kPage, last = to / kPage * kPage;
        if (value != 0 || first >= last) {
            one.before.clear(buffer, value);
            return;
        }
        if (one.pages == nullptr && present != nullptr) {
            try {
                one.pages =
                    std::make_unique<FilePages>(reinterpret_cast<void *>(first), last - first, present->folder_);
            } catch (const std::runtime_error & e) {
                present->error_ = e.what();
                return;
            }
        } else if (one.pages != nullptr) {
            one.pages->clear();
        } else {
            one.before.clear(buffer, value);
            return;
        }
        std::memset(base, 0, first - from);
        std::memset(reinterpret_cast<void *>(last), 0, to - last);
    }

    void free(ggml_backend_buffer_t buffer) {
        ggml_backend_buffer_i before;
        {
            const Lock lock(mutex);
            before = kept.at(buffer).before;
            kept.erase(buffer);  // its pages are memory again
        }
        before.free_buffer(buffer);
    }
};

KvOnDrive::KvOnDrive(std::string folder, size_t n_byte_min) : folder_(std::move(folder)), n_byte_min_(n_byte_min) {
    KvBuffers::all().begin(this);
}

std::vector<std::pair<std::string, PageRange>> KvOnDrive::tensors() const { return KvBuffers::all().tensors(); }

void KvOnDrive::close() { KvBuffers::all().end(this); }

}  // namespace outrider
