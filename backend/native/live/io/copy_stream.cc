#include "live/io/copy_stream.h"

#include <algorithm>
#include <utility>

namespace outrider {
namespace {

// At once to a device. The rpc backend hashes what is larger than 10 MiB before it sends it, which
// takes longer than sending; and what is computed need not wait behind a whole matrix.
constexpr size_t max_sent_bytes = 4 << 20;

constexpr int n_async_sender = 2;

}  // namespace

CopyStream::CopyStream(ggml_backend_dev_t device) : device_(device) {
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(device, &props);
    for (int i = 0; props.caps.async && i < n_async_sender; i++) {
        if (Backend backend{ggml_backend_dev_init(device, nullptr)}) {
            idle_.push_back(std::move(backend));
        }
    }
    n_sender_ = std::max(int(idle_.size()), 1);
}

void CopyStream::send(std::span<const Piece> pieces) {
    Backend backend = take();
    if (!backend) {
        for (const Piece & p : pieces) {
            send_blocking(p);
        }
        return;
    }
    for (const Piece & p : pieces) {
        ggml_backend_tensor_set_async(backend.get(), p.to, p.from, p.offset, p.size);
    }
    ggml_backend_synchronize(backend.get());
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(backend));
}

// An instance for the calling thread alone. Null where all are in use or the device has none.
CopyStream::Backend CopyStream::take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
        return nullptr;
    }
    Backend backend = std::move(idle_.back());
    idle_.pop_back();
    return backend;
}

void CopyStream::send_blocking(const Piece & piece) {
    for (size_t i = 0; i < piece.size; i += max_sent_bytes) {
        ggml_backend_tensor_set(piece.to, piece.from + i, piece.offset + i, std::min(max_sent_bytes, piece.size - i));
    }
}

}  // namespace outrider
