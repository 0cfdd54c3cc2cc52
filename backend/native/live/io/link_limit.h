// A bandwidth limit, for experiments with a slower disk or bus than this machine's.
#pragma once

#include <cstdint>

#include "live/ggml/thread_safety.h"

namespace outrider {

class LinkLimit {
  public:
    // 0: no limit.
    explicit LinkLimit(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

    // Return the time (of now_us()) at which the link has moved these bytes, after all bytes reserved before.
    double reserve(uint64_t bytes);
    // Sleep, then spin: a sleep ends too late by about the time of a copy of a megabyte.
    static void wait_until(double end_us);

  private:
    const double bytes_per_s_;
    Mutex mutex_;
    double free_at_us_ GUARDED_BY(mutex_) = 0;
};

}  // namespace outrider
