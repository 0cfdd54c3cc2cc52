// Gives memory its pages before they are first written to, in a thread: a read that has to wait for that
// takes several times as long.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace outrider {

class MemoryFiller {
  public:
    // `memory` must outlive the filler. `filled` is called by its thread when all of it has pages.
    explicit MemoryFiller(std::vector<std::span<uint8_t>> memory, std::function<void()> filled = [] {});
    // Stops before the end.
    ~MemoryFiller();

  private:
    void run(const std::vector<std::span<uint8_t>> & memory, const std::function<void()> & filled) const;

    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace outrider
