// The CPU's share of a layer that a device computes: a thread computes experts in place in host memory, while the
// device computes the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "live/compute/wave.h"
#include "live/ggml/thread_safety.h"
#include "live/memory/slab.h"

namespace outrider {

// Return a header of the same type and shape without data.
ggml_tensor plain_header(const ggml_tensor & of);

// One expert of the layer in progress, its input pairs and its output rows.
struct HostJob {
    Compute compute;
    std::vector<Pair> pairs;
    std::vector<const uint8_t *> matrices;  // [chunk], laid out as in the file; must stay valid
    std::vector<float> rows{};  // [n_pair][width of the layer's result], when done
    double us = 0;              // of the computation
};

class HostWork {
  public:
    // `tensors`: of the layers that may be computed. The thread calls `done` after each expert. Throws
    // std::runtime_error.
    HostWork(int n_thread, const std::vector<ExpertTensor> & tensors, std::function<void()> done);
    // Wait for the expert in progress.
    ~HostWork();
    HostWork(const HostWork &) = delete;
    HostWork & operator=(const HostWork &) = delete;

    // As WaveRunner::measure(). REQUIRES: not busy().
    double measure(std::span<ggml_tensor * const> stacks, int32_t n_row) { return runner_.measure(stacks, n_row); }
    // Begin a layer, as with WaveRunner. REQUIRES: not busy().
    void begin();
    void keep_inputs(const Segment & segment, const ggml_tensor * node) { runner_.keep_inputs(segment, node); }
    // REQUIRES: the inputs of all nodes were kept. The segment must not change until all jobs are taken or cancelled.
    void start(const Segment & segment, std::vector<HostJob> jobs);
    // Return whether the expert's job was waiting. It will not be computed then.
    bool withdraw(Expert expert);
    // Return whether a job was started and not taken.
    bool busy() const;
    // Return the next finished job, in the order of start(). Rethrows the thread's exceptions.
    std::optional<HostJob> take();
    // Block until a job can be taken, or the timeout.
    void wait(std::chrono::milliseconds timeout);
    // Forget all jobs. Waits for the one in progress.
    void cancel();

  private:
    // A model's tensor as a stack of one expert in host memory.
    struct Own {
        Layer layer;
        Chunk chunk;
        ggml_tensor one;
    };

    ggml_tensor * constant(ggml_tensor * t) const;
    void adopt_constants(const Segment & segment);
    void run();
    void compute(const Segment & segment, HostJob & job);

    std::map<const ggml_tensor *, Own> own_;
    std::vector<std::vector<Own *>> own_of_;  // [layer]
    std::function<void()> tell_;
    WaveRunner runner_;
    struct Constant {  // a copy of a weight that lies on the device
        ggml_tensor tensor;
        std::vector<uint8_t> bytes;
    };
    std::map<const ggml_tensor *, Constant> constants_;

    mutable Mutex mutex_;
    std::condition_variable changed_;
    const Segment * segment_ GUARDED_BY(mutex_) = nullptr;
    std::deque<HostJob> waiting_ GUARDED_BY(mutex_), done_ GUARDED_BY(mutex_);
    bool computing_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::exception_ptr error_ GUARDED_BY(mutex_);
    std::thread thread_;
};

}  // namespace outrider
