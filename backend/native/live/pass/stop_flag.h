// Ends llama.cpp's computation from another thread: for llama_context_params.abort_callback, which llama.cpp calls
// before every node.
#pragma once

#include <atomic>

namespace outrider {

class StopFlag {
  public:
    void set() { is_set_ = true; }
    void clear() { is_set_ = false; }
    static bool callback(void * self) { return static_cast<StopFlag *>(self)->is_set_; }

  private:
    std::atomic<bool> is_set_ = false;
};

}  // namespace outrider
