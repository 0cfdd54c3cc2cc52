// llama.cpp's callback, which is taken away for a token that needs no stop, and given back before other passes. When
// llama.cpp builds another graph, it sets the callback again by itself.
#pragma once

#include "ggml-backend.h"

namespace outrider {

class CallbackSwitch {
  public:
    // Null: unknown; then the callback stays.
    void use_scheduler(ggml_backend_sched_t scheduler, ggml_backend_sched_eval_callback callback, void * self) {
        scheduler_ = scheduler;
        callback_ = callback;
        self_ = self;
    }
    ggml_backend_sched_t scheduler() const { return scheduler_; }

    // The first pass of a cache always has the callback: a device that replays a recorded graph would otherwise replay
    // the slots of the cache before.
    void begin_cache() { was_asked_ = false; }
    bool may_be_off() const { return scheduler_ && was_asked_; }
    void begin_pass(bool off) {
        is_off_ = off;
        if (scheduler_) {
            ggml_backend_sched_set_eval_callback(scheduler_, off ? nullptr : callback_, self_);
        }
    }
    bool is_off() const { return is_off_; }
    void end_pass() {
        was_asked_ = was_asked_ || !is_off_;
        is_off_ = false;
    }

  private:
    ggml_backend_sched_t scheduler_ = nullptr;
    ggml_backend_sched_eval_callback callback_ = nullptr;
    void * self_ = nullptr;
    bool is_off_ = false;  // llama.cpp computes the pass without it
    bool was_asked_ = false;  // a pass of this cache was computed with it
};

}  // namespace outrider
