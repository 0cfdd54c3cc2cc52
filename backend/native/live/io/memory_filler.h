// Gives memory its pages in a thread, before the first write. A read into memory without pages takes several times as
// long.
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
    // `memory` must outlive the filler. Its thread calls `filled` when all of it has pages.
    explicit MemoryFiller(std::vector<std::span<uint8_t>> memory, std::function<void()> filled = [] {});
    // Stop, finished or not.
    ~MemoryFiller();

  private:
    void run(const std::vector<std::span<uint8_t>> & memory, const std::function<void()> & filled) const;

    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace outrider
