// Address space that takes no memory until it is written to. reserve_<system>.cc has what depends on the system.
#pragma once

#include <cstddef>

namespace outrider {

// Whether as much as all experts may be reserved, without limits, and the system itself may write there.
extern const bool reserving_is_free;

// Return readable and writable pages, or null. They do not count as used memory.
void * reserve_address_space(size_t size);
void release_address_space(void * address, size_t size);

// Ask for large pages, if the system has them. Call before the first use.
void prefer_large_pages(void * address, size_t size);

// Allocate memory for these pages now, if the system can. Keeps their contents.
void give_pages(void * address, size_t size);

// Free the memory of the pages that lie wholly in this range, where the system can. Their contents are lost.
void take_pages(void * address, size_t size);

// Let the system itself write to these pages, as a read of a file does. Return whether it can. Windows refuses to read
// into pages without memory, so it gives them some; elsewhere there is nothing to do.
bool let_system_write(void * address, size_t size);

}  // namespace outrider
