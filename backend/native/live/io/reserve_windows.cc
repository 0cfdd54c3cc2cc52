// Windows commits memory at allocation, so this counts against the page file. Not yet compiled or run on Windows.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "live/io/reserve.h"

namespace outrider {

void * reserve_address_space(size_t size) {
    return ::VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void release_address_space(void * address, size_t) { ::VirtualFree(address, 0, MEM_RELEASE); }

void prefer_large_pages(void *, size_t) {}

void give_pages(void *, size_t) {}

}  // namespace outrider
