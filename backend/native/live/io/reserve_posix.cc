#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "live/io/reserve.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace outrider {

void * reserve_address_space(size_t size) {
    void * p = ::mmap(nullptr, std::max<size_t>(size, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

const bool reserving_is_free = true;

void release_address_space(void * address, size_t size) { ::munmap(address, std::max<size_t>(size, 1)); }

void prefer_large_pages(void * address, size_t size) {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t page = 4096;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(address) + page - 1) / page * page;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(address) + size) / page * page;
    if (first < last) {
        ::madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
    }
#else
    (void) address;
    (void) size;
#endif
}

void give_pages(void * address, size_t size) {
#ifdef MADV_POPULATE_WRITE
    constexpr uintptr_t page = 4096;
    const uintptr_t first = reinterpret_cast<uintptr_t>(address) / page * page;
    ::madvise(reinterpret_cast<void *>(first), reinterpret_cast<uintptr_t>(address) + size - first,
              MADV_POPULATE_WRITE);
#else
    (void) address;
    (void) size;
#endif
}

void take_pages(void * address, size_t size) {
    constexpr uintptr_t page = 4096;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(address) + page - 1) / page * page;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(address) + size) / page * page;
    if (first < last) {
        ::madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
    }
}

bool let_system_write(void *, size_t) { return true; }

}  // namespace outrider
