#include <sys/mman.h>

#include <stdexcept>

#include "live/io/mapped_file.h"

namespace outrider {

MappedFile::MappedFile(const DirectFile & file) : size_(size_t(file.size())) {
    void * address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, int(file.handle()), 0);
    if (address == MAP_FAILED) {
        throw std::runtime_error("The file " + file.path() + " could not be mapped");
    }
    data_ = static_cast<const uint8_t *>(address);
}

MappedFile::~MappedFile() { ::munmap(const_cast<uint8_t *>(data_), size_); }

}  // namespace outrider
