#include <stdexcept>

#include "live/io/file_pages.h"

namespace outrider {

FilePages::FilePages(void *, size_t, const std::string &) : address_(nullptr), size_(0) {
    throw std::runtime_error("An attention cache on a drive needs Linux");
}
FilePages::~FilePages() = default;
void FilePages::clear() {}
PageRange FilePages::part(uintptr_t, size_t) const { return {}; }

}  // namespace outrider
