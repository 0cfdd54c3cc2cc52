// Not yet compiled or run on Windows by this project.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <filesystem>
#include <stdexcept>

#include "mapped_file.h"

namespace outrider {

MappedFile::MappedFile(const std::string & path) {
    const std::wstring wide = std::filesystem::path(std::u8string(path.begin(), path.end())).wstring();
    const HANDLE file = ::CreateFileW(wide.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING,
                                      FILE_ATTRIBUTE_NORMAL, nullptr);
    LARGE_INTEGER size{};
    HANDLE mapping = nullptr;
    if (file != INVALID_HANDLE_VALUE && ::GetFileSizeEx(file, &size)) {
        mapping = ::CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
    }
    if (mapping) {
        data_ = static_cast<const uint8_t *>(::MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0));
        ::CloseHandle(mapping);
    }
    if (file != INVALID_HANDLE_VALUE) {
        ::CloseHandle(file);
    }
    if (!data_) {
        throw std::runtime_error("The file " + path + " could not be mapped");
    }
    size_ = size_t(size.QuadPart);
}

MappedFile::~MappedFile() { ::UnmapViewOfFile(data_); }

}  // namespace outrider
