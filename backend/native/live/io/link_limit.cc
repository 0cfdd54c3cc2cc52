#include "live/io/link_limit.h"

#include <algorithm>
#include <thread>

namespace outrider {

LinkLimit::Clock::time_point LinkLimit::reserve(uint64_t bytes) {
    const auto now = Clock::now();
    if (bytes_per_s_ <= 0) {
        return now;
    }
    const std::chrono::duration<double> needed(double(bytes) / bytes_per_s_);
    std::lock_guard lock(mutex_);
    free_at_ = std::max(free_at_, now) + std::chrono::duration_cast<Clock::duration>(needed);
    return free_at_;
}

void LinkLimit::wait_until(Clock::time_point end) {
    constexpr std::chrono::microseconds spin(100);
    if (Clock::now() + spin < end) {
        std::this_thread::sleep_until(end - spin);
    }
    while (Clock::now() < end) {
        std::this_thread::yield();
    }
}

}  // namespace outrider
