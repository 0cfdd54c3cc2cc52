// Hostile inputs for the files for Windows: windows_test NAME runs one test in the current folder, and fails by
// aborting. `make wine-check` runs them under wine, with strict_windows.h between. system_test.cc has what all systems
// share.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "live/io/direct_file.h"
#include "live/io/mapped_file.h"
#include "live/io/reserve.h"
#include "strict_windows.h"

using namespace outrider;
namespace fs = std::filesystem;

namespace {

constexpr size_t block = DirectFile::block_bytes;
constexpr size_t mib = size_t(1) << 20;

void require(bool is_true, const std::string & what) {
    if (!is_true) {
        std::fprintf(stderr, "%s\n", what.c_str());
        std::abort();
    }
}

uint8_t byte_at(uint64_t i) { return uint8_t(i * 7 + i / 251 + (i >> 20) * 13); }
fs::path wide(const std::string & path) { return std::u8string(path.begin(), path.end()); }

void write_file(const std::string & path, size_t size) {
    std::vector<char> bytes(size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = char(byte_at(i));
    }
    std::ofstream(wide(path), std::ios::binary).write(bytes.data(), std::streamsize(size));
}

bool is_right(const uint8_t * bytes, uint64_t from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != byte_at(from + i)) {
            return false;
        }
    }
    return true;
}

// Return the error of a function, or "".
std::string caught(const std::function<void()> & f) {
    try {
        f();
    } catch (const std::runtime_error & error) {
        return error.what();
    }
    return "";
}

// Memory that begins at a block.
struct Blocks {
    std::vector<uint8_t> bytes;
    uint8_t * begin;
    explicit Blocks(size_t size)
        : bytes(size + block), begin(bytes.data() + block - reinterpret_cast<uintptr_t>(bytes.data()) % block) {}
};

void reads_any_range_of_any_size() {
    for (const size_t size : {size_t(1), size_t(512), block - 1, block, 3 * block + 17, 8 * mib + 1, 17 * mib + 4095}) {
        write_file("s.bin", size);
        const DirectFile file("s.bin");
        Blocks memory(size + 2 * block);
        for (const size_t from : {size_t(0), size_t(1), size_t(511), block, block + 1, size / 2, size - 1, size}) {
            for (const size_t n : {size_t(0), size_t(1), block, 3 * block - 1, 8 * mib, size - std::min(from, size)}) {
                for (const size_t shift : {size_t(0), size_t(1), size_t(512), block - 1}) {
                    if (from + n > size || shift + n > size + block) {
                        continue;
                    }
                    uint8_t * to = memory.begin + shift;
                    std::memset(to, 0xee, n);
                    file.read(from, n, to);
                    require(is_right(to, from, n), std::to_string(size) + " bytes from " + std::to_string(from) + ": " +
                                                       std::to_string(n) + " at " + std::to_string(shift));
                }
            }
        }
        const MappedFile mapped(file);
        require(is_right(mapped.data(), 0, size), "the mapped bytes");
    }
    fs::remove("s.bin");
}

void reads_into_many_pieces() {
    write_file("p.bin", 9 * mib + 333);
    const DirectFile file("p.bin");
    for (const size_t n_piece : {2, 3, 64, 65, 200}) {
        for (const size_t size : {size_t(1), block, size_t(5000), 10 * block}) {
            for (const size_t from : {size_t(0), block, size_t(777)}) {
                if (from + n_piece * size > file.size()) {
                    continue;
                }
                std::vector<Blocks> memory(n_piece, Blocks(size));
                std::vector<DirectFile::Piece> pieces;
                for (Blocks & m : memory) {
                    m = Blocks(size);  // a copy would begin elsewhere
                    pieces.push_back({m.begin, size});
                }
                file.read(from, pieces);
                for (size_t i = 0; i < n_piece; i++) {
                    require(is_right(memory[i].begin, from + i * size, size), "piece " + std::to_string(i));
                }
            }
        }
    }
}

void reads_beyond_4_gib() {
    constexpr uint64_t distant = 6'000'000'000, border = uint64_t(1) << 32;
    {
        std::ofstream out("big.bin", std::ios::binary);
        out.seekp(std::streamoff(distant));
        out.write("0123456789", 10);
        out.seekp(std::streamoff(border - 5));
        out.write("abcdefghij", 10);
    }
    {
        const DirectFile file("big.bin");
        require(file.size() == distant + 10, "the size");
        char text[11] = {};
        file.read(distant, 10, text);
        require(std::string(text) == "0123456789", "6 GB");
        file.read(border - 5, 10, text);
        require(std::string(text) == "abcdefghij", "across 4 GiB");
        const MappedFile mapped(file);
        require(std::memcmp(mapped.data() + distant, "0123456789", 10) == 0, "6 GB, mapped");
        require(caught([&] { file.read(~uint64_t(0) - 5, 100, text); }).find("ends before") != std::string::npos,
                "near 2^64");
    }
    fs::remove("big.bin");
}

void opens_any_name() {
    std::string longer = "long";
    for (int i = 0; i < 12; i++) {
        longer += "/a folder with quite a long name " + std::to_string(i);
    }
    for (const std::string & path : {std::string("a b  c/Ünï code 模型 🦊.bin"), longer + "/模型.gguf"}) {
        fs::create_directories(wide(path).parent_path());
        write_file(path, 2 * block + 7);
        uint8_t bytes[100];
        const DirectFile file(path);
        file.read(block - 6, 100, bytes);
        require(is_right(bytes, block - 6, 100), path);
        const MappedFile mapped(file);
    }
    std::error_code ignored;  // the C++ library removes no path as long
    fs::remove_all("a b  c", ignored);
    fs::remove_all("long", ignored);
}

void says_why_a_file_is_refused() {
    for (const char * path : {"", "not there.bin", "not there/x.bin", "\xff\xfe.bin", "a\xc3.bin"}) {
        const std::string said = caught([&] { const DirectFile file(path); });
        require(said.find("could not be opened: No such file or directory") != said.npos, path + (": " + said));
        require(std::none_of(said.begin(), said.end(), [](char c) { return uint8_t(c) >= 0x80; }), "no UTF-8");
    }
    for (const char * path : {".", "NUL", "CON"}) {
        require(!caught([&] { const DirectFile file(path); }).empty(), path);
    }
    write_file("own.bin", block);
    const HANDLE own = ::CreateFileW(L"own.bin", GENERIC_READ, 0, nullptr, OPEN_EXISTING, 0, nullptr);
    const std::string said = caught([&] { const DirectFile file("own.bin"); });
    require(said.find("Permission denied") != said.npos, "what another program has to itself: " + said);
    ::CloseHandle(own);
}

void opens_what_is_written_and_deleted_on_close() {
    const HANDLE own = ::CreateFileW(L"t.bin", GENERIC_READ | GENERIC_WRITE | DELETE, 7, nullptr, CREATE_ALWAYS,
                                     FILE_FLAG_DELETE_ON_CLOSE, nullptr);  // as tempfile.NamedTemporaryFile
    std::vector<char> bytes(block, 'x');
    DWORD n;
    require(::WriteFile(own, bytes.data(), DWORD(block), &n, nullptr), "a file");
    char one;
    DirectFile("t.bin").read(5, 1, &one);
    require(one == 'x', "contents");
    ::CloseHandle(own);
}

void says_why_a_read_failed() {
    write_file("e.bin", 20 * block);
    const DirectFile file("e.bin");
    Blocks memory(20 * block);
    strict().fail_every = 1;
    const std::string broken = caught([&] { file.read(0, block, memory.begin); });
    strict().fail_every = 0;
    require(broken.find("could not be read: ") != broken.npos, broken);
    const HANDLE other = ::CreateFileW(L"e.bin", GENERIC_READ, 7, nullptr, OPEN_EXISTING, 0, nullptr);
    OVERLAPPED at{};
    at.Offset = 8 * block;
    if (::LockFileEx(other, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, block, 0, &at)) {
        const std::string locked = caught([&] { file.read(0, 20 * block, memory.begin); });
        require(locked.empty() || locked.find("Permission denied") != locked.npos, locked);
    }
    ::CloseHandle(other);
}

void repeats_what_fails_and_continues_what_is_short() {
    write_file("e.bin", 20 * block);
    const DirectFile file("e.bin");
    Blocks memory(20 * block);
    for (std::atomic<uint64_t> * every : {&strict().fail_every, &strict().short_every}) {
        *every = 4;  // of the three reads of a range, another one each time
        for (int i = 0; i < 30; i++) {
            std::memset(memory.begin, 0, 20 * block);
            file.read(11, 19 * block, memory.begin + 11);
            require(is_right(memory.begin + 11, 11, 19 * block), "contents");
        }
        *every = 0;
    }
    require(strict().n_failed > 0 && strict().n_short > 0, "errors and short reads");
}

// A synchronous handle would let the readers of a file wait for each other.
void reads_are_in_flight_together() {
    write_file("m.bin", 4 * mib);
    const DirectFile file("m.bin");
    require(file.direct(), "direct");
    Blocks pieces(3 * block);
    const DirectFile::Piece list[] = {
        {pieces.begin, block}, {pieces.begin + block, block}, {pieces.begin + 2 * block, block}};
    file.read(block, list);
    require(is_right(pieces.begin, block, 3 * block), "pieces");
    require(strict().most_in_flight >= 3, "the pieces of a read together");
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 8; t++) {
        threads.emplace_back([&, t] {
            Blocks memory(200000 + block);
            uint64_t x = t + 1;
            for (int i = 0; i < 200; i++) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                const size_t from = size_t(x >> 33) % (4 * mib);
                const size_t n = std::min<size_t>(size_t(x >> 20) % 200000, 4 * mib - from);
                uint8_t * to = memory.begin + from % block;
                file.read(from, n, to);
                require(is_right(to, from, n), "what a thread read");
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    require(strict().n_in_flight == 0, "none is left");
    std::printf("%d reads, at most %d together\n", int(strict().n_read), int(strict().most_in_flight));
}

void reads_into_reserved_memory() {
    write_file("r.bin", 6 * mib);
    const DirectFile file("r.bin");
    auto * memory = static_cast<uint8_t *>(reserve_address_space(64 * mib));
    for (size_t i = 0; i < 6; i++) {  // never touched before
        file.read(i * mib, mib, memory + 9 * i * mib);
        require(is_right(memory + 9 * i * mib, i * mib, mib), "contents");
    }
    release_address_space(memory, 64 * mib);
}

void releases_address_space() {
    constexpr size_t size = size_t(1) << 34;
    for (size_t i = 0; i < 50; i++) {
        auto * memory = static_cast<uint8_t *>(reserve_address_space(size));
        require(memory != nullptr, "16 GB of addresses");
        memory[i * mib] = 1;
        release_address_space(memory, size);
    }
    release_address_space(nullptr, 0);
}

void says_that_memory_ran_out() {
    write_file("r.bin", mib);
    const DirectFile file("r.bin");
    void * memory = reserve_address_space(mib);
    strict().has_memory = false;
    require(!let_system_write(memory, mib), "no memory");
    strict().has_memory = true;
    file.read(0, mib, memory);
    release_address_space(memory, mib);
}

// The first use of memory that cannot be had ends the process with STATUS_NO_MEMORY, of which wine keeps 8 bits.
void ends_without_memory() {
    auto * memory = static_cast<uint8_t *>(reserve_address_space(mib));
    strict().has_memory = false;
    memory[0] = 1;
}

const std::map<std::string, std::function<void()>> tests{
    {"reads_any_range_of_any_size", reads_any_range_of_any_size},
    {"reads_into_many_pieces", reads_into_many_pieces},
    {"reads_beyond_4_gib", reads_beyond_4_gib},
    {"opens_any_name", opens_any_name},
    {"says_why_a_file_is_refused", says_why_a_file_is_refused},
    {"opens_what_is_written_and_deleted_on_close", opens_what_is_written_and_deleted_on_close},
    {"says_why_a_read_failed", says_why_a_read_failed},
    {"repeats_what_fails_and_continues_what_is_short", repeats_what_fails_and_continues_what_is_short},
    {"reads_are_in_flight_together", reads_are_in_flight_together},
    {"reads_into_reserved_memory", reads_into_reserved_memory},
    {"releases_address_space", releases_address_space},
    {"says_that_memory_ran_out", says_that_memory_ran_out},
    {"ends_without_memory", ends_without_memory},
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2 || !tests.contains(argv[1])) {
        std::fprintf(stderr, "windows_test NAME\n");
        return 2;
    }
    tests.at(argv[1])();
    require(strict().n_misaligned == 0, "a misaligned read past the cache");
    std::fflush(nullptr);
    std::_Exit(0);  // GCC frees the main thread's thread_local memory before it runs the destructors
}
