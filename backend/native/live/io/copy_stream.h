// Copies from the host's memory into a device's, beside what the device computes. Each sender has a
// backend instance of its own and waits for that one. A backend instance is for one thread at a time:
// on Vulkan, waiting for an event resets command buffers that another sender may be recording into.
#pragma once

#include <cstdint>
#include <memory>
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

    // Returns when all pieces are there. Any thread.
    void send(std::span<const Piece> pieces);
    static void send_blocking(const Piece & piece);

    ggml_backend_dev_t device() const { return device_; }
    // Threads that keep the link busy: while one waits for its bytes, the other's are on their way. One
    // where the device has no asynchronous copies.
    int n_sender() const { return n_sender_; }

  private:
    struct Free {
        void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    };
    using Backend = std::unique_ptr<ggml_backend, Free>;

    Backend take();

    ggml_backend_dev_t device_;
    int n_sender_ = 1;
    std::mutex mutex_;
    std::vector<Backend> idle_;  // not used by a sender now
};

}  // namespace outrider
