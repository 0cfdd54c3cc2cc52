#include "live/io/copy_stream.h"

#include <algorithm>
#include <utility>

#include "live/ggml/devices.h"

namespace outrider {
namespace {

// Bytes of one call. The rpc backend hashes more than 10 MiB before it sends them, which takes longer than sending.
// Shorter calls also let computation in between.
constexpr size_t max_sent_bytes = 4 << 20;

constexpr int n_async_sender = 2;

}  // namespace

CopyStream::CopyStream(ggml_backend_dev_t device) : device_(device) {
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(device, &props);
    const bool has_events = props.caps.events && has_lasting_events(device);
    const Lock lock(mutex_);
    for (int i = 0; props.caps.async && i < n_async_sender; i++) {
        if (ggml_backend_ptr backend{ggml_backend_dev_init(device, nullptr)}) {
            ggml_backend_event_ptr event(has_events ? ggml_backend_event_new(device) : nullptr);
            idle_.push_back({std::move(backend), std::move(event)});
        }
    }
    n_sender_ = std::max(int(idle_.size()), 1);
}

void CopyStream::send(std::span<const Piece> pieces, const Begun & begun) {
    Sender sender = take();
    if (!sender.backend) {
        for (const Piece & p : pieces) {
            send_blocking(p);
        }
        return;
    }
    for (const Piece & p : pieces) {
        ggml_backend_tensor_set_async(sender.backend.get(), p.to, p.from, p.offset, p.size);
    }
    if (begun && sender.event) {
        ggml_backend_event_record(sender.event.get(), sender.backend.get());
        begun(sender.event.get());
    }
    ggml_backend_synchronize(sender.backend.get());
    const Lock lock(mutex_);
    idle_.push_back(std::move(sender));
}

// Return what the calling thread uses alone. Empty if all are in use or the device has none.
CopyStream::Sender CopyStream::take() {
    const Lock lock(mutex_);
    if (idle_.empty()) {
        return {};
    }
    Sender sender = std::move(idle_.back());
    idle_.pop_back();
    return sender;
}

void CopyStream::send_blocking(const Piece & piece) {
    for (size_t i = 0; i < piece.size; i += max_sent_bytes) {
        ggml_backend_tensor_set(piece.to, piece.from + i, piece.offset + i, std::min(max_sent_bytes, piece.size - i));
    }
}

}  // namespace outrider
