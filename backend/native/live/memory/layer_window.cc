#include "live/memory/layer_window.h"

#include <algorithm>

#include "live/io/page_advice.h"

namespace outrider {
namespace {

constexpr int kLayerBits = 16;

void advise(const std::vector<LayerWindow::Range> & ranges, void (*how)(uintptr_t, size_t)) {
    for (const auto & [address, n] : ranges) {
        how(address, n);
    }
}

}  // namespace

LayerWindow::LayerWindow(std::vector<std::vector<Range>> layers, int32_t n_resident, int32_t n_ahead)
    : layers_(std::move(layers)),
      n_resident_(n_resident),
      n_ahead_(n_ahead),
      here_(layers_.size(), false),
      thread_([this] { run(); }) {}

void LayerWindow::reached(Layer layer) {
    const uint64_t number = (event_.load(std::memory_order_relaxed) >> kLayerBits) + 1;
    event_.store(number << kLayerBits | uint64_t(layer));
    event_.notify_one();
}

void LayerWindow::close() {
    if (thread_.joinable()) {
        closing_ = true;
        event_ = UINT64_MAX;  // another value than any that it waits with
        event_.notify_one();
        thread_.join();
    }
}

void LayerWindow::run() {
    uint64_t event = 0;
    while (true) {
        event_.wait(event);
        if (closing_) {
            return;
        }
        event = event_;
        follow(int32_t(event & ((1 << kLayerBits) - 1)), event);
    }
}

// Return the n-th layer of the window behind this layer; behind the last one comes the first one.
int32_t LayerWindow::after(int32_t layer, int32_t n) const {
    const int32_t n_window = int32_t(layers_.size()) - n_resident_;
    return n_resident_ + (std::max(layer - n_resident_, -1) + n) % n_window;
}

void LayerWindow::follow(int32_t at, uint64_t event) {
    const auto n_layer = int32_t(layers_.size());
    if (at >= n_layer || n_resident_ >= n_layer) {
        return;
    }
    std::vector<bool> needed(size_t(n_layer), false);
    needed[size_t(at)] = here_[size_t(at)] = true;  // it is being computed
    for (int32_t n = 1; n <= n_ahead_; n++) {
        needed[size_t(after(at, n))] = true;
    }
    for (int32_t l = n_resident_; l < n_layer; l++) {
        if (here_[size_t(l)] && !needed[size_t(l)]) {
            advise(layers_[size_t(l)], drop_pages);
            here_[size_t(l)] = false;
            n_dropped_++;
        }
    }
    for (int32_t n = 1; n <= n_ahead_ && event_ == event; n++) {
        const auto l = size_t(after(at, n));
        if (!here_[l]) {
            advise(layers_[l], read_pages);
            here_[l] = true;
            n_read_++;
        }
    }
}

}  // namespace outrider
