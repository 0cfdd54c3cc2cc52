// The clock of all times that are subtracted from each other.
#pragma once

#include <chrono>
#include <cstdint>

namespace outrider {

// Return microseconds since a fixed moment. Never decreases.
inline uint64_t now_us() {
    using namespace std::chrono;
    return uint64_t(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

}  // namespace outrider
