// Keeps leading layers' pages in memory, and a window of the other layers' ahead of the computation, where dense
// weights or the attention cache are pages of a file that do not all fit (Klotski, section 6.1). The system drops the
// page that was used least recently; where layers are used in turn, that is the page that is needed next.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "core/types.h"
#include "live/io/page_advice.h"

namespace outrider {

class LayerWindow {
  public:
    // layers: of each layer, the pages of its weights and its attention cache. room_bytes: of memory that they may
    // take. Leading layers stay. Up to n_ahead of the others are read before they are computed, fewer if the room is
    // small. If all fit, or no window does, nothing is read or dropped. Where the system has no such calls (other
    // than Linux), nothing happens.
    LayerWindow(std::vector<std::vector<PageRange>> layers, size_t room_bytes, int32_t n_ahead);
    ~LayerWindow() { close(); }
    LayerWindow(const LayerWindow &) = delete;
    LayerWindow & operator=(const LayerWindow &) = delete;

    // From the decoding thread: this layer's router has run. Does not wait.
    void reached(Layer layer);
    // Before the pages are unmapped. May be called twice.
    void close();
    // Layers that were read ahead, and dropped. From any thread.
    std::pair<uint64_t, uint64_t> counts() const { return {n_read_, n_dropped_}; }

  private:
    void run();
    void divide();
    void follow(int32_t at, uint64_t event);
    int32_t after(int32_t layer, int32_t n) const;

    const std::vector<std::vector<PageRange>> layers_;
    const size_t room_bytes_;
    const int32_t most_ahead_;
    // State of the thread.
    int32_t n_resident_ = 0, n_ahead_ = 0;
    int32_t last_ = INT32_MAX;  // the layer that was reached last
    std::vector<bool> here_;
    std::atomic<uint64_t> event_ = 0;  // counts reached(); its low bits are the layer
    std::atomic<bool> closing_ = false;
    std::atomic<uint64_t> n_read_ = 0, n_dropped_ = 0;
    std::thread thread_;
};

}  // namespace outrider
