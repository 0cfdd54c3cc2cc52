// Windows counts committed memory against RAM and page file, so pages are committed at their first use only.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include "live/io/reserve.h"

namespace outrider {
namespace {

constexpr uintptr_t step = uintptr_t(1) << 20;  // committed at once: one exception for each, not for each page
// The exit status where no memory is left: STATUS_NO_MEMORY of ntstatus.h, as backend/protocol/worker_exit.py knows it.
constexpr unsigned no_memory_status = 0xC0000017;

// A reserved range: its begin and its end.
struct Ranges {
    std::mutex mutex;
    std::map<uintptr_t, uintptr_t> ends;
};

Ranges & ranges() {
    static Ranges & all = *new Ranges;  // never destroyed: threads may still use their memory
    return all;
}

enum class Commit { done, foreign, no_memory };

// Commit the part of [first, last) that lies in the reserved range of `address`. Return whether that can be used now.
Commit commit(uintptr_t address, uintptr_t first, uintptr_t last) {
    Ranges & all = ranges();
    const std::lock_guard lock(all.mutex);
    auto range = all.ends.upper_bound(address);
    if (range == all.ends.begin() || address >= (--range)->second) {
        return Commit::foreign;
    }
    first = std::max(first, range->first);
    last = std::min(last, range->second);
    const bool is_there =
        ::VirtualAlloc(reinterpret_cast<void *>(first), last - first, MEM_COMMIT, PAGE_READWRITE) != nullptr;
    return is_there ? Commit::done : Commit::no_memory;
}

// A page that was never used is committed, and the instruction runs again. It fails again for ever if this commits
// another page, or if the instruction does not read or write.
LONG WINAPI on_exception(EXCEPTION_POINTERS * what) {
    const EXCEPTION_RECORD & record = *what->ExceptionRecord;
    constexpr ULONG_PTR write = 1;  // 0: a read; 8: an instruction lies there
    if (record.ExceptionCode != EXCEPTION_ACCESS_VIOLATION || record.NumberParameters < 2 ||
        record.ExceptionInformation[0] > write) {
        return EXCEPTION_CONTINUE_SEARCH;
    }
    const uintptr_t address = record.ExceptionInformation[1];
    const uintptr_t begin = address / step * step;  // it may lie in a neighbouring range
    switch (commit(address, begin, begin + step)) {
        case Commit::done: return EXCEPTION_CONTINUE_EXECUTION;
        case Commit::foreign: return EXCEPTION_CONTINUE_SEARCH;
        case Commit::no_memory: ::TerminateProcess(::GetCurrentProcess(), no_memory_status);
    }
    return EXCEPTION_CONTINUE_SEARCH;
}

}  // namespace

const bool reserving_is_free = false;

void * reserve_address_space(size_t size) {
    size = std::max<size_t>(size, 1);
    void * address = ::VirtualAlloc(nullptr, size, MEM_RESERVE, PAGE_READWRITE);
    if (address) {
        [[maybe_unused]] static void * const handler = ::AddVectoredExceptionHandler(1, on_exception);
        Ranges & all = ranges();
        const std::lock_guard lock(all.mutex);
        const auto first = reinterpret_cast<uintptr_t>(address);
        all.ends[first] = first + size;
    }
    return address;
}

void release_address_space(void * address, size_t) {
    Ranges & all = ranges();
    const std::lock_guard lock(all.mutex);
    all.ends.erase(reinterpret_cast<uintptr_t>(address));
    ::VirtualFree(address, 0, MEM_RELEASE);
}

void prefer_large_pages(void *, size_t) {}

void give_pages(void * address, size_t size) {
    const auto first = reinterpret_cast<uintptr_t>(address);
    commit(first, first, first + size);
}

void take_pages(void *, size_t) {}

bool let_system_write(void * address, size_t size) {
    const auto first = reinterpret_cast<uintptr_t>(address);
    return size == 0 || commit(first, first, first + size) == Commit::done;
}

}  // namespace outrider
