#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "live/io/file_pages.h"

namespace outrider {
namespace {

int open_unnamed(const std::string & folder) {
    const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || errno == ENOSPC || errno == EACCES || errno == EROFS) {
        return file;
    }
    std::string name = folder + "/kv-XXXXXX";  // a file system without O_TMPFILE
    const int named = mkostemp(name.data(), O_CLOEXEC);
    if (named >= 0) {
        unlink(name.c_str());
    }
    return named;
}

std::runtime_error failed(const std::string & folder, size_t size, int error) {
    return std::runtime_error("The folder " + folder + " cannot hold an attention cache of " +
                              std::to_string((size + (1 << 20) - 1) >> 20) + " MiB: " + std::strerror(error));
}

}  // namespace

FilePages::FilePages(void * address, size_t size, const std::string & folder) : address_(address), size_(size) {
    file_ = open_unnamed(folder);
    int error = file_ < 0 ? errno : posix_fallocate(file_, 0, off_t(size));
    if (error == 0 && mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0) == MAP_FAILED) {
        error = errno;
    }
    if (error != 0) {
        if (file_ >= 0) {
            close(file_);
        }
        throw failed(folder, size, error);
    }
}

FilePages::~FilePages() {
    mmap(address_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    close(file_);
}

void FilePages::clear() {
    if (fallocate(file_, FALLOC_FL_ZERO_RANGE, 0, off_t(size_)) != 0) {
        std::memset(address_, 0, size_);
    }
}

PageRange FilePages::part(uintptr_t address, size_t n) const {
    const auto first = reinterpret_cast<uintptr_t>(address_);
    const uintptr_t from = std::clamp(address, first, first + size_), to = std::clamp(address + n, from, first + size_);
    return {from, to - from, file_, int64_t(from - first)};
}

}  // namespace outrider
