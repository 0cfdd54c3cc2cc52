// Copies from host memory to a device while the device computes. Each sender uses and waits for a backend instance of
// its own, because only one thread at a time may use an instance: on Vulkan, a wait resets command buffers into which
// another sender may be recording.
#pragma once

#include <cstdint>
#include <functional>
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

    // Called when pieces are on their way, with an event that tells other streams of the device when they are there.
    // The event is the sender's: it may be used until send() returns.
    using Begun = std::function<void(ggml_backend_event_t)>;

    // Return when all pieces are there. `begun`, or empty, is called if the device has such events. Any thread may call
    // these.
    void send(std::span<const Piece> pieces, const Begun & begun);
    static void send_blocking(const Piece & piece);

    ggml_backend_dev_t device() const { return device_; }
    // Return the number of threads that keep the link busy: 1 if the device has no asynchronous copies, else 2, so that
    // one thread's bytes are in flight while the other waits.
    int n_sender() const { return n_sender_; }

  private:
    struct Sender {
        ggml_backend_ptr backend;  // null: the device has no asynchronous copies
        ggml_backend_event_ptr event;  // null: no other stream can wait for its copies
    };

    Sender take();

    ggml_backend_dev_t device_;
    int n_sender_ = 1;
    Mutex mutex_;
    std::vector<Sender> idle_ GUARDED_BY(mutex_);
};

}  // namespace outrider
