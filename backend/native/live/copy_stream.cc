#include "copy_stream.h"

#include <algorithm>

namespace outrider {
namespace {

// At once to a device. The rpc backend hashes what is larger than 10 MiB before it sends it, which
// takes longer than sending; and what is computed need not wait behind a whole matrix.
constexpr size_t max_sent_bytes = 4 << 20;

}  // namespace

CopyStream::CopyStream(ggml_backend_dev_t device) : device_(device) {
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(device, &props);
    if (props.caps.async) {
        backend_ = ggml_backend_dev_init(device, nullptr);
    }
    if (backend_ && props.caps.events) {
        if (ggml_backend_event_t event = ggml_backend_event_new(device)) {
            idle_events_.push_back(event);
            has_events_ = true;
        }
    }
}

CopyStream::~CopyStream() {
    for (ggml_backend_event_t event : idle_events_) {
        ggml_backend_event_free(event);
    }
    if (backend_) {
        ggml_backend_free(backend_);
    }
}

void CopyStream::send(std::span<const Piece> pieces) {
    if (!backend_) {
        for (const Piece & p : pieces) {
            send_blocking(p);
        }
        return;
    }
    std::unique_lock lock(mutex_);
    for (const Piece & p : pieces) {
        ggml_backend_tensor_set_async(backend_, p.to, p.from, p.offset, p.size);
    }
    ggml_backend_event_t event = has_events_ ? take_event() : nullptr;
    if (!event) {
        ggml_backend_synchronize(backend_);
        return;
    }
    ggml_backend_event_record(event, backend_);
    lock.unlock();
    ggml_backend_event_synchronize(event);
    lock.lock();
    idle_events_.push_back(event);
}

// REQUIRES: the lock is held. Null where the device has no more of them.
ggml_backend_event_t CopyStream::take_event() {
    if (idle_events_.empty()) {
        return ggml_backend_event_new(device_);
    }
    ggml_backend_event_t event = idle_events_.back();
    idle_events_.pop_back();
    return event;
}

void CopyStream::send_blocking(const Piece & piece) {
    for (size_t i = 0; i < piece.size; i += max_sent_bytes) {
        ggml_backend_tensor_set(piece.to, piece.from + i, piece.offset + i, std::min(max_sent_bytes, piece.size - i));
    }
}

}  // namespace outrider
