// The clock of a pass. Times are subtracted across files, so all of them read this one.
#pragma once

#include <chrono>
#include <cstdint>

namespace outrider {

// Microseconds since some moment in the past; never goes back.
inline uint64_t now_us() {
    using namespace std::chrono;
    return uint64_t(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

}  // namespace outrider
