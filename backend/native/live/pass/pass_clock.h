// The costs of a cache's passes: computing, waiting, copying.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.h"
#include "live/ggml/clock.h"

namespace outrider {

// Microseconds since the cache was made.
struct PatchTimes {
    uint64_t stall_us = 0;      // computation waited for copies
    uint64_t wave_us = 0;       // waves were computed, or the host's share was waited for
    uint64_t graph_us = 0;      // the part of wave_us in the device's kernels
    uint64_t n_graph = 0;       // graphs computed in waves
    uint64_t callback_us = 0;   // callbacks, with stalls and waves
    uint64_t predict_us = 0;    // the core saw a router's input: the prediction, and the copies that it orders
    uint64_t delay_us = 0;      // the part of predict_us in which no copy was awaited
    uint64_t link_busy_us = 0;  // at least one copy into slots was in flight
    uint64_t link_idle_us = 0;  // no copy was in flight while the pass needed a missing expert
    uint64_t host_us = 0;       // the host computed experts beside a device
    uint64_t host_wait_us = 0;  // the part of wave_us in which only the host computed
    uint64_t n_stop = 0;        // stops of llama.cpp's computation for the callback
    uint64_t n_unasked = 0;     // layers that needed no stop: all their experts stay resident
};

class PassClock {
  public:
    // Forget the cache before.
    void begin_cache(int32_t n_layer) {
        *this = {};
        stall_us_.assign(size_t(n_layer), 0);
        wave_us_.assign(size_t(n_layer), 0);
    }

    // `link_busy_us`: as in PatchTimes, at this moment.
    void begin_pass(uint64_t link_busy_us) {
        began_us_ = now_us();
        busy_us_ = link_busy_us;
        idle_us_ = 0;
    }
    void end_pass() { sums.link_idle_us += idle_us_; }
    void routed() { routed_us_ = now_us(); }
    double since_routed_us() const { return double(now_us() - routed_us_); }
    // The layer lacks experts: the link could have fetched them since the pass began.
    void lacks_experts(uint64_t link_busy_us) { idle_us_ = now_us() - began_us_ - (link_busy_us - busy_us_); }

    void stalled(Layer layer, uint64_t us) {
        stall_us_[size_t(layer)] += us;
        sums.stall_us += us;
    }
    void waved(Layer layer, uint64_t us) {
        wave_us_[size_t(layer)] += us;
        sums.wave_us += us;
    }
    // From now on a device waits for copies of `layer`, until they are there.
    void device_waits(Layer layer) {
        waiting_ = layer;
        waits_since_us_ = now_us();
    }
    // They were there.
    void device_waited(uint64_t until_us) {
        const Layer layer = std::exchange(waiting_, none);
        if (layer != none && until_us > waits_since_us_) {
            stalled(layer, until_us - waits_since_us_);
        }
    }

    const std::vector<uint64_t> & stall_us() const { return stall_us_; }  // [layer]
    const std::vector<uint64_t> & wave_us() const { return wave_us_; }    // [layer]

    PatchTimes sums;  // without link_busy_us

  private:
    std::vector<uint64_t> stall_us_, wave_us_;
    uint64_t began_us_ = 0, busy_us_ = 0;  // the pass began; link_busy_us then
    uint64_t idle_us_ = 0;                 // of the pass so far, as in PatchTimes
    uint64_t routed_us_ = 0;
    Layer waiting_ = none;  // the device waits for copies of this layer
    uint64_t waits_since_us_ = 0;
};

}  // namespace outrider
