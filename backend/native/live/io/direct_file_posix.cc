// Linux: O_DIRECT. macOS: F_NOCACHE.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "live/io/direct_file.h"

namespace outrider {

DirectFile::DirectFile(const std::string & path) : path_(path) {
    int fd = -1;
#ifdef O_DIRECT
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0) {
        // Some file systems accept the flag and refuse the reads.
        alignas(block_bytes) static thread_local char probe[block_bytes];
        direct_ = ::pread(fd, probe, sizeof probe, 0) >= 0;
        if (!direct_) {
            ::close(fd);
            fd = -1;
        }
    }
#endif
    if (fd < 0) {
        fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
#ifdef POSIX_FADV_RANDOM
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // read-ahead would stay in the cache
#endif
    }
    if (fd < 0) {
        throw std::runtime_error("The file " + path + " could not be opened: " + std::strerror(errno));
    }
#ifdef F_NOCACHE
    ::fcntl(fd, F_NOCACHE, 1);
#endif
    struct stat st{};
    if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        ::close(fd);
        throw std::runtime_error("The path " + path + " is not a regular file");
    }
    handle_ = fd;
    size_ = uint64_t(st.st_size);
}

DirectFile::~DirectFile() { ::close(int(handle_)); }

int64_t DirectFile::read_some(uint64_t offset, std::span<const Piece> pieces) const {
    iovec iov[max_piece];
    for (size_t i = 0; i < pieces.size(); i++) {
        iov[i] = {pieces[i].address, pieces[i].size};
    }
    const ssize_t n = ::preadv(int(handle_), iov, int(pieces.size()), off_t(offset));
    return n < 0 ? -int64_t(errno) : int64_t(n);
}

void DirectFile::drop_cached(uint64_t offset, uint64_t size) const {
#ifdef POSIX_FADV_DONTNEED
    // The system drops whole pages only.
    const uint64_t first = offset / block_bytes * block_bytes;
    const uint64_t last = (offset + size + block_bytes - 1) / block_bytes * block_bytes;
    ::posix_fadvise(int(handle_), off_t(first), off_t(last - first), POSIX_FADV_DONTNEED);
#else
    (void) offset;
    (void) size;
#endif
}

}  // namespace outrider
