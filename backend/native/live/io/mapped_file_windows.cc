// Compiled with mingw-w64 and run under wine only.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdexcept>

#include "live/io/mapped_file.h"

namespace outrider {

MappedFile::MappedFile(const DirectFile & file) : size_(size_t(file.size())) {
    const HANDLE mapping =
        ::CreateFileMappingW(reinterpret_cast<HANDLE>(file.handle()), nullptr, PAGE_READONLY, 0, 0, nullptr);
    if (mapping) {
        data_ = static_cast<const uint8_t *>(::MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0));
        ::CloseHandle(mapping);
    }
    if (!data_) {
        throw std::runtime_error("The file " + file.path() + " could not be mapped");
    }
}

MappedFile::~MappedFile() { ::UnmapViewOfFile(data_); }

}  // namespace outrider
