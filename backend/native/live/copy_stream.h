// The way from the host's memory into a device's, beside what the device computes: a backend instance
// of its own, and events to learn what has arrived, where the device has such things; ggml's blocking
// call where it has not.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "ggml-backend.h"

namespace outrider {

class CopyStream {
  public:
    // Bytes for a place in a device's tensor.
    struct Piece {
        ggml_tensor * to;
        size_t offset;
        const uint8_t * from;
        size_t size;
    };

    explicit CopyStream(ggml_backend_dev_t device);
    ~CopyStream();
    CopyStream(const CopyStream &) = delete;
    CopyStream & operator=(const CopyStream &) = delete;

    // Returns when all pieces are there. Any thread.
    void send(std::span<const Piece> pieces);
    static void send_blocking(const Piece & piece);

    ggml_backend_dev_t device() const { return device_; }
    // Whether copies run beside what the device computes.
    bool is_async() const { return backend_ != nullptr; }
    bool has_events() const { return has_events_; }
    // Threads that keep it busy: while one learns that its bytes have arrived, another's are on their way.
    int n_sender() const { return has_events_ ? 2 : 1; }

  private:
    ggml_backend_event_t take_event();

    ggml_backend_dev_t device_;
    ggml_backend_t backend_ = nullptr;  // null: the blocking call
    bool has_events_ = false;
    std::mutex mutex_;
    std::vector<ggml_backend_event_t> idle_events_;
};

}  // namespace outrider
