// Advice to the system about pages of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider {

// Read the pages of these bytes, or drop them. Where the system cannot (other than Linux), nothing happens; the pages
// are then read when they are needed. Bytes stay as they are.
void read_pages(uintptr_t address, size_t n);
void drop_pages(uintptr_t address, size_t n);

}  // namespace outrider
