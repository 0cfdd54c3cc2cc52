// Address space that costs no memory until it is written to. What differs by system is in
// reserve_<system>.cc.
#pragma once

#include <cstddef>

namespace outrider {

// Readable and writable, page-aligned, or null. Not counted against memory that is free.
void * reserve_address_space(size_t size);
void release_address_space(void * address, size_t size);

// Asks for pages larger than usual, where the system has them, before the memory is first used.
void prefer_large_pages(void * address, size_t size);

// Has the system find memory for these pages now, where it can be asked to. What they hold stays as it is.
void give_pages(void * address, size_t size);

}  // namespace outrider
