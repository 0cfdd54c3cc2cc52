// Windows: FILE_FLAG_NO_BUFFERING. Compiled with mingw-w64 and run under wine only.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "live/io/direct_file.h"
#include "live/io/reserve.h"

namespace outrider {
namespace {

constexpr size_t max_count = size_t(1) << 30;  // bytes of one read: whole blocks

}  // namespace

DirectFile::DirectFile(const std::string & path) : path_(path) {
    const std::wstring wide = std::filesystem::path(std::u8string(path.begin(), path.end())).wstring();
    const auto open = [&](DWORD flags) {
        const auto sharing = [&](DWORD share) {
            return ::CreateFileW(wide.c_str(), GENERIC_READ, share, nullptr, OPEN_EXISTING, flags, nullptr);
        };
        // Nobody may change the file while it is open here, except who has it open already.
        HANDLE found = sharing(FILE_SHARE_READ);
        if (found == INVALID_HANDLE_VALUE && ::GetLastError() == ERROR_SHARING_VIOLATION) {
            found = sharing(FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE);
        }
        return found;
    };
    HANDLE handle = open(FILE_FLAG_NO_BUFFERING);
    direct_ = handle != INVALID_HANDLE_VALUE;
    if (!direct_) {
        handle = open(FILE_ATTRIBUTE_NORMAL);
    }
    LARGE_INTEGER size;
    if (handle == INVALID_HANDLE_VALUE || !::GetFileSizeEx(handle, &size)) {
        throw std::runtime_error("The file " + path + " could not be opened");
    }
    handle_ = reinterpret_cast<intptr_t>(handle);
    size_ = uint64_t(size.QuadPart);
}

DirectFile::~DirectFile() { ::CloseHandle(reinterpret_cast<HANDLE>(handle_)); }

int64_t DirectFile::read_some(uint64_t offset, std::span<const Piece> pieces) const {
    int64_t total = 0;
    for (const Piece & piece : pieces) {
        OVERLAPPED at{};
        at.Offset = DWORD(offset + total);
        at.OffsetHigh = DWORD((offset + total) >> 32);
        // A count has 32 bits. read_all() continues a short read.
        const auto wanted = DWORD(std::min(piece.size, max_count));
        const auto read = [&](DWORD & n) {
            return ::ReadFile(reinterpret_cast<HANDLE>(handle_), piece.address, wanted, &n, &at) != 0;
        };
        DWORD n = 0;
        bool is_read = read(n);
        // Reserved memory that was never used: the system answers in one of two ways.
        if (!is_read && (::GetLastError() == ERROR_NOACCESS || ::GetLastError() == ERROR_INVALID_USER_BUFFER)) {
            give_pages(piece.address, wanted);
            is_read = read(n);
        }
        if (!is_read) {
            return total > 0 || ::GetLastError() == ERROR_HANDLE_EOF ? total : -EIO;
        }
        total += n;
        if (n < piece.size) {
            break;
        }
    }
    return total;
}

void DirectFile::drop_cached(uint64_t, uint64_t) const {}

}  // namespace outrider
