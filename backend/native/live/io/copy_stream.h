// Copies from host memory to a device while the device computes. Each sender uses and waits for a backend instance of
// its own, because only one thread at a time may use an instance: on Vulkan, waiting for an event resets command
// buffers into which another sender may be recording.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml-cpp.h"
#include "live/ggml/thread_safety.h"

namespace outrider {

class CopyStream {
  public:
    // Bytes and their place in a device's tensor.
    struct Piece {
        ggml_tensor * to;
        size_t offset;
        const uint8_t * from;
        size_t size;
    };

    explicit CopyStream(ggml_backend_dev_t device);

    // Return when all pieces are there. Any thread may call these.
    void send(std::span<const Piece> pieces);
    static void send_blocking(const Piece & piece);

    ggml_backend_dev_t device() const { return device_; }
    // Return the number of threads that keep the link busy: 1 if the device has no asynchronous copies, else 2, so that
    // one thread's bytes are in flight while the other waits.
    int n_sender() const { return n_sender_; }

  private:
    ggml_backend_ptr take();

    ggml_backend_dev_t device_;
    int n_sender_ = 1;
    Mutex mutex_;
    std::vector<ggml_backend_ptr> idle_ GUARDED_BY(mutex_);  // no sender uses them
};

}  // namespace outrider
