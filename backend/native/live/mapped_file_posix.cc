#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "mapped_file.h"

namespace outrider {

MappedFile::MappedFile(const std::string & path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about{};
    void * address = MAP_FAILED;
    if (file >= 0 && ::fstat(file, &about) == 0) {
        size_ = size_t(about.st_size);
        address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    }
    if (file >= 0) {
        ::close(file);
    }
    if (address == MAP_FAILED) {
        throw std::runtime_error("The file " + path + " could not be mapped");
    }
    data_ = static_cast<const uint8_t *>(address);
}

MappedFile::~MappedFile() { ::munmap(const_cast<uint8_t *>(data_), size_); }

}  // namespace outrider
