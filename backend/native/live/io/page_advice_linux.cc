#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "live/io/page_advice.h"

namespace outrider {
namespace {

// Values of the kernel's headers, which may be older than the kernel.
constexpr int kPageOut = 21, kPopulateRead = 22;

bool advise(const PageRange & range, int advice) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = range.address / page * page;
    return madvise(reinterpret_cast<void *>(begin), range.address + range.n - begin, advice) == 0;
}

// Call `use` for each part of the range that is in the file.
template <typename Use>
void for_each_written(const PageRange & range, Use use) {
    if (range.file < 0) {
        use(range);
        return;
    }
    const off_t end = range.offset + off_t(range.n);
    off_t at = range.offset;
    while (at < end) {
        const off_t first = lseek(range.file, at, SEEK_DATA);
        if (first < 0 || first >= end) {
            return;
        }
        const off_t hole = lseek(range.file, first, SEEK_HOLE);
        at = hole < 0 ? end : std::min(hole, end);
        use(PageRange{range.address + uintptr_t(first - range.offset), size_t(at - first), range.file, first});
    }
}

}  // namespace

void read_pages(const PageRange & range) {
    for_each_written(range, [](const PageRange & part) {
        if (!advise(part, kPopulateRead)) {
            advise(part, MADV_WILLNEED);
        }
    });
}

void drop_pages(const PageRange & range) {
    if (range.file >= 0) {  // a page can only leave once it has been written
        sync_file_range(range.file, range.offset, off_t(range.n), SYNC_FILE_RANGE_WRITE);
    }
    advise(range, kPageOut);
}

size_t written_bytes(const PageRange & range) {
    size_t n = 0;
    for_each_written(range, [&n](const PageRange & part) { n += part.n; });
    return n;
}

}  // namespace outrider
