// The common part of all systems: ranges are split into whole blocks, and errors retried.
#include "live/io/direct_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace outrider {
namespace {

constexpr size_t block = DirectFile::block_bytes;
constexpr size_t max_read_bytes = size_t(8) << 20;
constexpr int max_tries = 4;

uint64_t round_down(uint64_t x) { return x / block * block; }
uint64_t round_up(uint64_t x) { return (x + block - 1) / block * block; }

struct AlignedDelete {
    void operator()(uint8_t * p) const { ::operator delete[](p, std::align_val_t(block)); }
};
using AlignedBytes = std::unique_ptr<uint8_t[], AlignedDelete>;

// The calling thread's bounce buffer for whole blocks around a read.
uint8_t * bounce() {
    thread_local const AlignedBytes bytes(
        static_cast<uint8_t *>(::operator new[](max_read_bytes + 2 * block, std::align_val_t(block))));
    return bytes.get();
}

}  // namespace

// Repeat `read` a few times if it throws std::system_error.
void DirectFile::try_again(const std::function<void()> & read) const {
    int error = 0;
    for (int attempt = 0; attempt < max_tries; attempt++) {
        if (attempt > 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5 << (2 * attempt)));
        }
        try {
            return read();
        } catch (const std::system_error & e) {
            error = e.code().value();
        }
    }
    throw std::runtime_error("The file " + path_ + " could not be read: " + std::strerror(error));
}

void DirectFile::read(uint64_t offset, size_t size, void * dst) const {
    if (offset > size_ || size > size_ - offset) {
        throw std::runtime_error("The file " + path_ + " ends before the data that it should hold");
    }
    auto * out = static_cast<uint8_t *>(dst);
    while (size > 0) {
        const size_t n = std::min(size, max_read_bytes);
        try_again([&] {
            if (direct_) {
                read_blocks(offset, n, out);
            } else {
                const Piece piece{out, n};
                read_all(offset, {&piece, 1}, n);
                drop_cached(offset, n);
            }
        });
        offset += n;
        out += n;
        size -= n;
    }
}

void DirectFile::read(uint64_t offset, std::span<const Piece> pieces) const {
    size_t size = 0;
    for (const Piece & p : pieces) {
        size += p.size;
    }
    const bool at_once = size <= max_read_bytes && pieces.size() <= max_piece;
    if (pieces.size() == 1 || !at_once || offset > size_ || size > size_ - offset) {
        for (const Piece & p : pieces) {
            read(offset, p.size, p.address);
            offset += p.size;
        }
    } else if (!direct_ || is_aligned(offset, pieces)) {
        try_again([&] { read_all(offset, pieces, size); });
        if (!direct_) {
            drop_cached(offset, size);
        }
    } else {
        scatter(offset, size, pieces);
    }
}

// Read whole blocks around the range into a bounce buffer, and copy from there.
void DirectFile::scatter(uint64_t offset, size_t size, std::span<const Piece> pieces) const {
    const uint64_t first = round_down(offset);
    const Piece whole{bounce(), size_t(round_up(offset + size) - first)};
    const size_t head = offset - first;
    // The last block of a file is short: stop when the range itself is complete.
    try_again([&] { read_all(first, {&whole, 1}, head + size); });
    const uint8_t * from = bounce() + head;
    for (const Piece & p : pieces) {
        std::memcpy(p.address, from, p.size);
        from += p.size;
    }
}

bool DirectFile::is_aligned(uint64_t offset, std::span<const Piece> pieces) const {
    return offset % block == 0 && std::all_of(pieces.begin(), pieces.end(), [](const Piece & p) {
               return reinterpret_cast<uintptr_t>(p.address) % block == 0 && p.size % block == 0;
           });
}

void DirectFile::read_all(uint64_t offset, std::span<const Piece> pieces, size_t wanted) const {
    size_t done = 0;
    while (done < wanted) {
        Piece rest[max_piece];
        size_t n_rest = 0;
        size_t skip = done;
        for (const Piece & p : pieces) {
            const size_t cut = std::min(skip, p.size);
            skip -= cut;
            if (cut < p.size) {
                rest[n_rest++] = {static_cast<uint8_t *>(p.address) + cut, p.size - cut};
            }
        }
        const int64_t n = read_some(offset + done, {rest, n_rest});
        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            throw std::system_error(n == 0 ? EIO : int(-n), std::generic_category());
        }
        // A short direct read must continue at a block; otherwise the next read is refused. Less than a block means
        // that the file has become shorter.
        const size_t so_far = done + size_t(n);
        const size_t next = !direct_ || so_far >= wanted ? so_far : size_t(round_down(so_far));
        if (next == done) {
            throw std::system_error(EIO, std::generic_category());
        }
        done = next;
    }
}

// Read whole blocks around [offset, offset + size): the partial ones at both ends into a bounce buffer, the others
// straight to dst if the addresses permit.
void DirectFile::read_blocks(uint64_t offset, size_t size, void * dst) const {
    const uint64_t first = round_down(offset);
    const uint64_t last = round_up(offset + size);
    const size_t head = offset - first;  // bytes before the range in its first block
    auto * out = static_cast<uint8_t *>(dst);
    const bool straight = (reinterpret_cast<uintptr_t>(dst) - head) % block == 0;
    if (straight && head == 0 && size % block == 0) {
        const Piece whole{dst, size};
        read_all(first, {&whole, 1}, size);
    } else if (straight && last - first > 2 * block) {
        // [first, first + block) -> bounce, whole blocks -> dst, [last - block, last) -> bounce
        const size_t middle = size_t(last - first) - 2 * block;
        const Piece pieces[] = {{bounce(), block}, {out + (block - head), middle}, {bounce() + block, block}};
        read_all(first, pieces, head + size);
        std::memcpy(dst, bounce() + head, block - head);
        const size_t tail = size - (block - head) - middle;
        std::memcpy(out + (size - tail), bounce() + block, tail);
    } else {
        const Piece whole{bounce(), size_t(last - first)};
        read_all(first, {&whole, 1}, head + size);
        std::memcpy(dst, bounce() + head, size);
    }
}

}  // namespace outrider
