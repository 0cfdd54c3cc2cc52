// Windows: FILE_FLAG_NO_BUFFERING. Compiled with mingw-w64 and run under wine only.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "live/io/direct_file.h"
#include "live/io/reserve.h"

namespace outrider {
namespace {

constexpr size_t max_count = size_t(1) << 30;  // bytes of one read: whole blocks

int errno_of(DWORD error) {
    switch (error) {
        case ERROR_SHARING_VIOLATION:  // another program has the file, or a range of it, to itself
        case ERROR_LOCK_VIOLATION: return EACCES;
        case ERROR_NOT_ENOUGH_MEMORY:
        case ERROR_COMMITMENT_LIMIT:
        case ERROR_NO_SYSTEM_RESOURCES: return ENOMEM;
        case ERROR_INVALID_NAME:
        case ERROR_BAD_PATHNAME: return ENOENT;
    }
    const auto condition = std::system_category().default_error_condition(int(error));
    return condition.category() == std::generic_category() ? condition.value() : EIO;
}

[[noreturn]] void refuse(const std::string & path, int error) {
    throw std::runtime_error("The file " + path + " could not be opened: " + std::strerror(error));
}

// Return a path of UTF-8 as the system wants it. Throws std::runtime_error.
std::wstring wide_of(const std::string & path) {
    const auto convert = [&](wchar_t * out, int size) {
        return ::MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.data(), int(path.size()), out, size);
    };
    std::wstring wide(size_t(convert(nullptr, 0)), L'\0');
    if (wide.empty()) {
        std::string shown = path;  // a sentence is UTF-8
        std::replace_if(shown.begin(), shown.end(), [](char c) { return uint8_t(c) >= 0x80; }, '?');
        refuse(shown, ENOENT);
    }
    convert(wide.data(), int(wide.size()));
    return wide;
}

// A read of one piece. Threads read the same file, so each read has an event of its own.
class Flight {
  public:
    Flight() { at_.hEvent = ::CreateEventW(nullptr, TRUE, FALSE, nullptr); }
    ~Flight() {
        if (at_.hEvent) {
            ::CloseHandle(at_.hEvent);
        }
    }
    Flight(const Flight &) = delete;
    Flight & operator=(const Flight &) = delete;

    // Return 0 if the read is in flight, or an error of Windows.
    DWORD begin(HANDLE file, uint64_t offset, void * address, DWORD size) {
        at_.Offset = DWORD(offset);
        at_.OffsetHigh = DWORD(offset >> 32);
        if (!at_.hEvent) {
            return ERROR_NOT_ENOUGH_MEMORY;
        }
        const DWORD error = ::ReadFile(file, address, size, nullptr, &at_) ? 0 : ::GetLastError();
        return error == ERROR_IO_PENDING ? 0 : error;
    }
    // Wait for its end. Return 0 and the bytes, or an error of Windows.
    DWORD end(HANDLE file, DWORD & n) { return ::GetOverlappedResult(file, &at_, &n, TRUE) ? 0 : ::GetLastError(); }

  private:
    OVERLAPPED at_{};
};

// Reserved memory that was never used: the system answers in one of two ways.
bool has_no_pages(DWORD error) { return error == ERROR_NOACCESS || error == ERROR_INVALID_USER_BUFFER; }

}  // namespace

DirectFile::DirectFile(const std::string & path) : path_(path) {
    const std::wstring wide = wide_of(path);
    const auto open = [&](DWORD flags) {
        // Without FILE_FLAG_OVERLAPPED the reads of all threads would wait for each other.
        const auto sharing = [&](DWORD share) {
            return ::CreateFileW(wide.c_str(), GENERIC_READ, share, nullptr, OPEN_EXISTING,
                                 flags | FILE_FLAG_OVERLAPPED, nullptr);
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
    if (handle == INVALID_HANDLE_VALUE) {
        refuse(path, errno_of(::GetLastError()));
    }
    LARGE_INTEGER size;
    if (::GetFileType(handle) != FILE_TYPE_DISK || !::GetFileSizeEx(handle, &size)) {
        ::CloseHandle(handle);
        throw std::runtime_error("The path " + path + " is not a regular file");
    }
    handle_ = reinterpret_cast<intptr_t>(handle);
    size_ = uint64_t(size.QuadPart);
}

DirectFile::~DirectFile() { ::CloseHandle(reinterpret_cast<HANDLE>(handle_)); }

// All pieces are in flight together.
int64_t DirectFile::read_some(uint64_t offset, std::span<const Piece> pieces) const {
    const auto file = reinterpret_cast<HANDLE>(handle_);
    // A count has 32 bits. read_all() continues a short read.
    const auto count = [](const Piece & piece) { return DWORD(std::min(piece.size, max_count)); };
    std::vector<Flight> flights(pieces.size());
    DWORD error = 0;
    size_t n_begun = 0;
    while (n_begun < pieces.size() && error == 0) {
        const Piece & piece = pieces[n_begun];
        const auto begin = [&] { return flights[n_begun].begin(file, offset, piece.address, count(piece)); };
        error = begin();
        if (has_no_pages(error)) {
            error = let_system_write(piece.address, count(piece)) ? begin() : DWORD(ERROR_NOT_ENOUGH_MEMORY);
        }
        n_begun += error == 0 ? 1 : 0;
        offset += piece.size;
    }
    int64_t total = 0;
    bool whole = true;  // so far
    for (size_t i = 0; i < n_begun; i++) {
        DWORD n = 0;
        const DWORD failed = flights[i].end(file, n);
        if (has_no_pages(failed)) {
            let_system_write(pieces[i].address, count(pieces[i]));  // for the next try
        }
        if (whole) {
            total += failed ? 0 : n;
            error = failed ? failed : error;
            whole = !failed && n == pieces[i].size;
        }
    }
    return total > 0 || error == 0 || error == ERROR_HANDLE_EOF ? total : -int64_t(errno_of(error));
}

void DirectFile::drop_cached(uint64_t, uint64_t) const {}

}  // namespace outrider
