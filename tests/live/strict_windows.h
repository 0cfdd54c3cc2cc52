// Stands between the files for Windows and wine: refuses what Windows refuses and wine does not, which is a read past
// the cache whose offset, size or address is no multiple of the block; lets reads fail and memory run out; counts.
// Included before direct_file_windows.cc and reserve_windows.cc (packaging/windows/wine/CMakeLists.txt).
#pragma once
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

struct Strict {
    std::atomic<uint64_t> n_read{0}, n_misaligned{0}, n_failed{0}, n_short{0};
    std::atomic<uint64_t> n_in_flight{0}, most_in_flight{0};
    std::atomic<uint64_t> fail_every{0};   // that read fails with ERROR_CRC; 0: none
    std::atomic<uint64_t> short_every{0};  // that read ends a block early
    std::atomic<bool> has_memory{true};
    std::mutex mutex;
    std::set<HANDLE> direct;  // files opened past the cache
};
inline Strict & strict() {
    static Strict & all = *new Strict;
    return all;
}

inline HANDLE WINAPI strict_CreateFileW(LPCWSTR name, DWORD access, DWORD share, LPSECURITY_ATTRIBUTES security,
                                        DWORD how, DWORD flags, HANDLE like) {
    const HANDLE handle = CreateFileW(name, access, share, security, how, flags, like);
    const DWORD error = GetLastError();
    if (handle != INVALID_HANDLE_VALUE) {
        const std::lock_guard lock(strict().mutex);
        strict().direct.erase(handle);
        if (flags & FILE_FLAG_NO_BUFFERING) {
            strict().direct.insert(handle);
        }
    }
    SetLastError(error);
    return handle;
}

inline BOOL WINAPI strict_ReadFile(HANDLE handle, LPVOID address, DWORD size, LPDWORD n, LPOVERLAPPED at) {
    Strict & s = strict();
    const uint64_t number = ++s.n_read;
    const auto every = [&](uint64_t n_between) { return n_between > 0 && number % n_between == 0; };
    const auto refuse = [](DWORD error) {
        SetLastError(error);
        return FALSE;
    };
    bool is_direct;
    {
        const std::lock_guard lock(s.mutex);
        is_direct = s.direct.contains(handle);
    }
    if (is_direct && (at->Offset % 4096 != 0 || size % 4096 != 0 || reinterpret_cast<uintptr_t>(address) % 4096 != 0)) {
        s.n_misaligned++;
        return refuse(ERROR_INVALID_PARAMETER);
    }
    if (every(s.fail_every)) {
        s.n_failed++;
        return refuse(ERROR_CRC);
    }
    if (every(s.short_every) && size > 8192) {
        s.n_short++;
        size -= 4096;
    }
    const uint64_t n_now = ++s.n_in_flight;
    for (uint64_t most = s.most_in_flight; n_now > most && !s.most_in_flight.compare_exchange_weak(most, n_now);) {
    }
    const BOOL done = ReadFile(handle, address, size, n, at);
    const DWORD error = GetLastError();
    if (!done && error != ERROR_IO_PENDING) {
        s.n_in_flight--;
    }
    SetLastError(error);
    return done;
}

inline BOOL WINAPI strict_GetOverlappedResult(HANDLE handle, LPOVERLAPPED at, LPDWORD n, BOOL waits) {
    const BOOL done = GetOverlappedResult(handle, at, n, waits);
    strict().n_in_flight--;
    return done;
}

inline LPVOID WINAPI strict_VirtualAlloc(LPVOID address, SIZE_T size, DWORD how, DWORD protection) {
    if ((how & MEM_COMMIT) && !strict().has_memory) {
        SetLastError(ERROR_COMMITMENT_LIMIT);
        return nullptr;
    }
    return VirtualAlloc(address, size, how, protection);
}

#ifdef STRICT_WINDOWS
#define CreateFileW strict_CreateFileW
#define ReadFile strict_ReadFile
#define GetOverlappedResult strict_GetOverlappedResult
#define VirtualAlloc strict_VirtualAlloc
#endif
