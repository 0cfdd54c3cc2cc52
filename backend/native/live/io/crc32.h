// The arithmetic of CRC-32 (zlib's), by the processor's own instructions where it has them.
#pragma once

#include <cstdint>
#include <span>

namespace outrider {

// Remainders are without the start and end values of CRC-32, so that they are linear: the remainder of a range is the
// sum (XOR) of those of its chunks, each followed by zeros up to the end.
uint32_t crc32_remainder(std::span<const uint8_t> bytes);

// Return the remainder after n more zero bytes.
uint32_t crc32_followed_by_zeros(uint32_t r, uint64_t n);

}  // namespace outrider
