// The CPU's share of a layer that a device computes: experts where they lie in the host's memory, in a
// thread of its own, while the device computes the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "live/compute/wave.h"
#include "live/memory/slab.h"

namespace outrider {

// A header of the same shape, of nothing but memory, whose place is to be filled in.
ggml_tensor plain_header(const ggml_tensor & of);

// One expert of the layer in progress, and what it makes of its rows.
struct HostJob {
    Compute compute;
    std::vector<Pair> pairs;
    std::vector<const uint8_t *> matrices;  // [chunk], laid out as in the model's file; they stay meanwhile
    std::vector<float> rows{};  // [n_pair][width of the layer's result], once it is done
    double us = 0;              // that it took
};

class HostWork {
  public:
    // `tensors` of the layers whose experts may be asked for. `done` is called from the thread whenever
    // something is. Throws std::runtime_error.
    HostWork(int n_thread, const std::vector<ExpertTensor> & tensors, std::function<void()> done);
    // Waits for what has begun.
    ~HostWork();
    HostWork(const HostWork &) = delete;
    HostWork & operator=(const HostWork &) = delete;

    // Microseconds that one expert takes for so many rows; `stacks`: matrices of some. REQUIRES: not busy().
    double measure(std::span<ggml_tensor * const> stacks, int32_t n_row) { return runner_.measure(stacks, n_row); }
    // A layer, as with WaveRunner. REQUIRES: not busy().
    void begin();
    void keep_inputs(const Segment & segment, const ggml_tensor * node) { runner_.keep_inputs(segment, node); }
    // REQUIRES: the inputs of all nodes were kept; the segment stays as it is until all is taken or
    // cancelled.
    void start(const Segment & segment, std::vector<HostJob> jobs);
    // True when it was started, and had not begun: it never will.
    bool withdraw(Expert expert);
    // Whether anything was started that has not been taken.
    bool busy() const;
    // What is done, in the order in which it was started. Throws what went wrong.
    std::optional<HostJob> take();
    // Until something can be taken, or the time is over.
    void wait(std::chrono::milliseconds timeout);
    // Forgets what was started; waits for what has begun.
    void cancel();

  private:
    // The model's tensor as a stack of one expert, wherever that lies.
    struct Own {
        Layer layer;
        Chunk chunk;
        ggml_tensor one;
    };

    ggml_tensor * constant(ggml_tensor * t) const;
    void adopt_constants(const Segment & segment);
    void run();
    void compute(HostJob & job);

    std::map<const ggml_tensor *, Own> own_;
    std::vector<std::vector<Own *>> own_of_;  // [layer]
    std::function<void()> tell_;
    WaveRunner runner_;
    struct Constant {  // a weight of the device's, in the host's memory
        ggml_tensor tensor;
        std::vector<uint8_t> bytes;
    };
    std::map<const ggml_tensor *, Constant> constants_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    const Segment * segment_ = nullptr;
    std::deque<HostJob> waiting_, done_;
    bool computing_ = false;
    bool stopping_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace outrider
