#include "live/io/link_limit.h"

#include <algorithm>
#include <thread>

#include "live/ggml/clock.h"

namespace outrider {

double LinkLimit::reserve(uint64_t bytes) {
    if (bytes_per_s_ <= 0) {
        return 0;
    }
    const Lock lock(mutex_);
    free_at_us_ = std::max(free_at_us_, double(now_us())) + double(bytes) / bytes_per_s_ * 1e6;
    return free_at_us_;
}

void LinkLimit::wait_until(double end_us) {
    constexpr double spin_us = 100;
    if (const double sleep_us = end_us - double(now_us()) - spin_us; sleep_us > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(sleep_us));
    }
    while (double(now_us()) < end_us) {
        std::this_thread::yield();
    }
}

}  // namespace outrider
