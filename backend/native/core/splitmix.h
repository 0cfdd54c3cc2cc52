// A hash with which neighbouring numbers have nothing in common: the finaliser of splitmix64 (Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#pragma once

#include <cstdint>

namespace outrider {

inline uint64_t splitmix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace outrider
