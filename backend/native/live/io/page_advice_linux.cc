#include <sys/mman.h>
#include <unistd.h>

#include "live/io/page_advice.h"

namespace outrider {
namespace {

// Values of the kernel's headers, which may be older than the kernel.
constexpr int kPageOut = 21, kPopulateRead = 22;

bool advise(uintptr_t address, size_t n, int advice) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = address / page * page;
    return madvise(reinterpret_cast<void *>(begin), address + n - begin, advice) == 0;
}

}  // namespace

void read_pages(uintptr_t address, size_t n) {
    if (!advise(address, n, kPopulateRead)) {
        advise(address, n, MADV_WILLNEED);
    }
}

void drop_pages(uintptr_t address, size_t n) { advise(address, n, kPageOut); }

}  // namespace outrider
