#include <sys/mman.h>

#include <algorithm>

#include "reserve.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace outrider {

void * reserve_address_space(size_t size) {
    void * p = ::mmap(nullptr, std::max<size_t>(size, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void release_address_space(void * address, size_t size) { ::munmap(address, std::max<size_t>(size, 1)); }

}  // namespace outrider
