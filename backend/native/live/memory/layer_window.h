// Keeps leading layers' dense weights in memory, and a window of the other layers' ahead of the computation, where the
// weights are pages of a file that do not all fit (Klotski, section 6.1). The system drops the page that was used least
// recently; where layers are used in turn, that is the page that is needed next.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "core/types.h"

namespace outrider {

class LayerWindow {
  public:
    using Range = std::pair<uintptr_t, size_t>;  // address, bytes

    // Of each layer, the pages of its weights. The first n_resident layers stay; of the others, n_ahead are read before
    // they are computed. Where the system has no such calls (other than Linux), nothing happens.
    LayerWindow(std::vector<std::vector<Range>> layers, int32_t n_resident, int32_t n_ahead);
    ~LayerWindow() { close(); }
    LayerWindow(const LayerWindow &) = delete;
    LayerWindow & operator=(const LayerWindow &) = delete;

    // From the decoding thread: this layer's router has run. Does not wait.
    void reached(Layer layer);
    // Before the weights are unmapped. May be called twice.
    void close();
    // Layers that were read ahead, and dropped. From any thread.
    std::pair<uint64_t, uint64_t> counts() const { return {n_read_, n_dropped_}; }

  private:
    void run();
    void follow(int32_t at, uint64_t event);
    int32_t after(int32_t layer, int32_t n) const;

    const std::vector<std::vector<Range>> layers_;
    const int32_t n_resident_, n_ahead_;
    std::vector<bool> here_;  // of the thread
    std::atomic<uint64_t> event_ = 0;  // counts reached(); its low bits are the layer
    std::atomic<bool> closing_ = false;
    std::atomic<uint64_t> n_read_ = 0, n_dropped_ = 0;
    std::thread thread_;
};

}  // namespace outrider
