// What one device needs to compute its layers' experts: the numbers of slots that llama.cpp's own
// mat-muls read, and the graphs of waves.
#pragma once

#include <memory>
#include <span>

#include "live/compute/wave.h"

namespace outrider {

class DeviceWork {
  public:
    // For passes of at most `max_token` tokens that use `n_expert_used` experts each. Throws
    // std::runtime_error when memory is short or the device refuses.
    DeviceWork(ggml_backend_dev_t device, int n_thread, int32_t n_expert_used, int32_t max_token,
               WaveRunner::SlotsOf slots_of);
    ~DeviceWork();
    DeviceWork(const DeviceWork &) = delete;
    DeviceWork & operator=(const DeviceWork &) = delete;

    ggml_backend_dev_t device() const { return device_; }
    WaveRunner & waves() { return waves_; }

    // [n_expert_used, n_token], as set last.
    ggml_tensor * slot_ids() { return slot_ids_; }
    void set_slot_ids(std::span<const int32_t> slots, int32_t n_token);

    // Reads so many bytes of a tensor that has been computed; they are there after the next end_reads(). All
    // reads in between cost one wait.
    void read(const ggml_tensor * tensor, void * to, size_t n_byte);
    void end_reads();

  private:
    ggml_backend_dev_t device_;
    WaveRunner waves_;
    ggml_context * ids_context_ = nullptr;
    ggml_backend_buffer_t ids_buffer_ = nullptr;
    ggml_tensor * slot_ids_ = nullptr;
    bool reading_ = false;
};

}  // namespace outrider
