// The host's share of the layers that devices compute (core/schedule/host_share.h). The host computes in a thread of
// its own; its rows are then written into the device's result. Also measures who is how fast, for the core.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "live/compute/host_speeds.h"
#include "live/compute/host_work.h"
#include "live/memory/mapped_experts.h"
#include "live/pass/cache.h"

namespace outrider {

// Belongs to the decoding thread. Must be destroyed before the cache.
class HostPartner {
  public:
    // Return null if the host may not compute any layer's experts. Throws std::runtime_error.
    static std::unique_ptr<HostPartner> make(const MoeGraph & graph, const ExpertFiles & files, Cache & cache,
                                             Hybrid hybrid);

    void pass_ended() { meter_.pass_ended(); }
    // Return the present speeds, [layer].
    const std::vector<HostSpeeds> & update_speeds();
    const std::vector<HostSpeeds> & speeds() const { return speeds_; }

    // Forget the previous layer.
    void clear();
    // Plan an expert of the layer, or take it back. withdraw() returns false if its computation has begun.
    void plan(const Compute & compute) { planned_.push_back(compute); }
    bool withdraw(Expert expert);

    // The layer is computed in waves. Then, as with WaveRunner, copy what the segment's nodes read from outside.
    void begin_waves();
    void keep_inputs(const Segment & segment, const ggml_tensor * node);
    // Start computing the planned experts. `pairs_of`: [expert].
    void start(const Segment & segment, const std::vector<std::vector<Pair>> & pairs_of);
    // Return a finished expert, if there is one. Its rows go to the device with hand_over(), which collects rows: the
    // device may be busy with a wave when they are written.
    std::optional<HostJob> take();
    void hand_over(const Segment & segment, WaveRunner & device);
    // The device has computed its share of the layer for `n_token` tokens, since `began_us`. Sometimes measure it.
    void device_done(const Segment & segment, int32_t n_token, uint64_t began_us);

    bool busy() const { return work_.busy(); }
    void wait(std::chrono::milliseconds timeout) { work_.wait(timeout); }
    void cancel();

  private:
    HostPartner(const MoeGraph & graph, const ExpertFiles & files, Cache & cache);
    KernelSpeed measure_device(DeviceWork & work, Layer layer) const;
    KernelSpeed measure_host(Layer layer);

    const MoeGraph & graph_;
    Cache & cache_;
    MappedExperts mapped_;
    HostWork work_;
    SpeedMeter meter_;
    std::vector<HostSpeeds> speeds_;  // [layer]
    uint64_t last_bytes_ = 0, last_busy_us_ = 0;  // of the link at the last update_speeds()
    std::vector<Compute> planned_;  // not yet started
    std::vector<Pair> pairs_;  // computed, not yet written into the device's result
    std::vector<float> rows_;  // of pairs_
    uint64_t handed_us_ = 0;  // of the layer: copies to and from the host
    int32_t n_unmeasured_ = 0;  // layers since the device was measured
};

}  // namespace outrider
