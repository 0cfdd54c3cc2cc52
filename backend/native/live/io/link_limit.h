// A link of a set bandwidth, for experiments: a disk or a bus that is slower than this machine's.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace outrider {

class LinkLimit {
  public:
    using Clock = std::chrono::steady_clock;

    // 0: no limit.
    explicit LinkLimit(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

    // When such a link will have brought these bytes, after all that was asked of it before.
    Clock::time_point reserve(uint64_t bytes);
    // Sleeps, and for the last moment spins: a sleep alone ends too late by about the time that a
    // copy of a megabyte takes.
    static void wait_until(Clock::time_point end);

  private:
    double bytes_per_s_;
    std::mutex mutex_;
    Clock::time_point free_at_{};
};

}  // namespace outrider
