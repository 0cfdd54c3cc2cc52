#include "live/memory/layer_window.h"

#include <algorithm>

namespace outrider {
namespace {

constexpr int kLayerBits = 16;
constexpr int32_t kBeside = 2;  // layers beside those read ahead: one is computed, and one is not dropped yet

void advise(const std::vector<PageRange> & ranges, void (*how)(const PageRange &)) {
    for (const PageRange & range : ranges) {
        how(range);
    }
}

}  // namespace

LayerWindow::LayerWindow(std::vector<std::vector<PageRange>> layers, size_t room_bytes, int32_t n_ahead)
    : layers_(std::move(layers)),
      room_bytes_(room_bytes),
      most_ahead_(n_ahead),
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
        const auto at = int32_t(event & ((1 << kLayerBits) - 1));
        if (at >= int32_t(layers_.size())) {
            continue;
        }
        if (at <= last_) {  // a new pass: the attention cache has grown
            divide();
        }
        last_ = at;
        follow(at, event);
    }
}

// Set how many layers stay, and how many are read ahead.
void LayerWindow::divide() {
    const auto n_layer = int32_t(layers_.size());
    std::vector<size_t> bytes(layers_.size(), 0);
    size_t all_bytes = 0;
    for (size_t l = 0; l < layers_.size(); l++) {
        for (const PageRange & range : layers_[l]) {
            bytes[l] += written_bytes(range);
        }
        all_bytes += bytes[l];
    }
    n_resident_ = n_layer;
    n_ahead_ = 0;
    if (all_bytes <= room_bytes_) {
        return;
    }
    const size_t most_bytes = *std::max_element(bytes.begin(), bytes.end());
    size_t taken_bytes = 0;
    for (n_ahead_ = most_ahead_; n_ahead_ > 0; n_ahead_--) {
        taken_bytes = size_t(n_ahead_ + kBeside) * most_bytes;
        if (taken_bytes <= room_bytes_) {
            break;
        }
    }
    if (n_ahead_ == 0) {
        return;  // there is no room for a window
    }
    for (n_resident_ = 0; n_resident_ < n_layer; n_resident_++) {
        taken_bytes += bytes[size_t(n_resident_)];
        if (taken_bytes > room_bytes_) {
            return;
        }
    }
}

// Return the n-th layer of the window behind this layer; behind the last one comes the first one.
int32_t LayerWindow::after(int32_t layer, int32_t n) const {
    const int32_t n_window = int32_t(layers_.size()) - n_resident_;
    return n_resident_ + (std::max(layer - n_resident_, -1) + n) % n_window;
}

void LayerWindow::follow(int32_t at, uint64_t event) {
    const auto n_layer = int32_t(layers_.size());
    if (n_resident_ >= n_layer) {
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
