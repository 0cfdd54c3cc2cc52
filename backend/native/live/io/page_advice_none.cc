#include "live/io/page_advice.h"

namespace outrider {

void read_pages(uintptr_t, size_t) {}
void drop_pages(uintptr_t, size_t) {}

}  // namespace outrider
