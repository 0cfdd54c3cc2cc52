#include "live/io/page_advice.h"

namespace outrider {

void read_pages(const PageRange &) {}
void drop_pages(const PageRange &) {}
size_t written_bytes(const PageRange & range) { return range.n; }

}  // namespace outrider
