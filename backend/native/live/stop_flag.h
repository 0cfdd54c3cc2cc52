// Ends a computation of llama.cpp from another thread: for llama_context_params.abort_callback,
// which is asked before every node of the graph.
#pragma once

#include <atomic>

namespace outrider {

class StopFlag {
  public:
    void raise() { raised_ = true; }
    void clear() { raised_ = false; }
    static bool callback(void * self) { return static_cast<StopFlag *>(self)->raised_; }

  private:
    std::atomic<bool> raised_ = false;
};

}  // namespace outrider
