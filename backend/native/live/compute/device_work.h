// The state of one device that computes experts: the slot ids that llama.cpp's own mat-muls read, and the waves.
#pragma once

#include <span>

#include "live/compute/wave.h"

namespace outrider {

class DeviceWork {
  public:
    // For passes of at most `max_token` tokens. Throws std::runtime_error if memory is short or the device refuses.
    DeviceWork(ggml_backend_dev_t device, int n_thread, int32_t n_expert_used, int32_t max_token,
               WaveRunner::SlotsOf slots_of);

    ggml_backend_dev_t device() const { return device_; }
    WaveRunner & waves() { return waves_; }

    // [Shape::used, n_token]
    ggml_tensor * slot_ids() { return slot_ids_; }
    void set_slot_ids(std::span<const int32_t> slots, int32_t n_token);

    // Use the backend of the device in this scheduler from now on; null: one of our own.
    void use_scheduler(ggml_backend_sched_t scheduler);

    // Read the first `n_byte` bytes of a computed tensor. They are there after end_reads(), which waits once for all
    // reads.
    void read(const ggml_tensor * tensor, void * to, size_t n_byte);
    void end_reads();

  private:
    ggml_backend_dev_t device_;
    WaveRunner waves_;
    ggml_context_ptr ids_context_{ggml_init({ggml_tensor_overhead() * 2, nullptr, true})};
    ggml_backend_buffer_ptr ids_buffer_;
    ggml_tensor * slot_ids_;
    ggml_backend_buffer_ptr slots_staging_, read_staging_;  // null: the device is the host
    struct Read {
        void * to;
        const uint8_t * staged;
        size_t n_byte;
    };
    std::vector<Read> reads_;  // since end_reads(), through read_staging_
    size_t n_staged_ = 0;  // bytes of read_staging_ in use
    bool reading_ = false;
};

}  // namespace outrider
