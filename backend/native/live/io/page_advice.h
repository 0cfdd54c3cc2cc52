// Advice to the system about pages of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider {

// Bytes of memory that are pages of a file. file: a descriptor, -1 if no call needs it: for pages that are written,
// which may be none of the file's yet. offset: of the first byte in this file.
struct PageRange {
    uintptr_t address = 0;
    size_t n = 0;
    int file = -1;
    int64_t offset = 0;
};

// Read the pages of these bytes, or drop them. Where the system cannot (other than Linux), nothing happens; the pages
// are then read when they are needed. Bytes stay as they are. Pages that were never written are not read.
void read_pages(const PageRange & range);
void drop_pages(const PageRange & range);
// Return how many of these bytes are in the file.
size_t written_bytes(const PageRange & range);

}  // namespace outrider
