// What is the same on every system: splitting a range into whole blocks, and trying again.
#include "direct_file.h"

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

AlignedBytes aligned_bytes(size_t size) {
    return AlignedBytes(static_cast<uint8_t *>(::operator new[](size, std::align_val_t(block))));
}

}  // namespace

void DirectFile::read(uint64_t offset, size_t size, void * dst) const {
    if (offset > size_ || size > size_ - offset) {
        throw std::runtime_error("The file " + path_ + " ends before the data that it should hold");
    }
    auto * out = static_cast<uint8_t *>(dst);
    while (size > 0) {
        const size_t n = std::min(size, max_read_bytes);
        int error = 0;
        for (int attempt = 0; attempt < max_tries; attempt++) {
            if (attempt > 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5 << (2 * attempt)));
            }
            try {
                direct_ ? read_blocks(offset, n, out) : read_plain(offset, n, out);
                error = 0;
                break;
            } catch (const std::system_error & e) {
                error = e.code().value();
            }
        }
        if (error != 0) {
            throw std::runtime_error("The file " + path_ + " could not be read: " + std::strerror(error));
        }
        offset += n;
        out += n;
        size -= n;
    }
}

// Reads whole blocks around [offset, offset + size): the broken ones at both ends into a bounce
// buffer, the whole ones between straight to dst if the addresses allow it.
void DirectFile::read_blocks(uint64_t offset, size_t size, void * dst) const {
    thread_local AlignedBytes bounce = aligned_bytes(max_read_bytes + 2 * block);
    const uint64_t first = round_down(offset);
    const uint64_t last = round_up(offset + size);
    const size_t head = offset - first;            // bytes before the range in its first block
    const bool straight = (reinterpret_cast<uintptr_t>(dst) - head) % block == 0 && last - first > 2 * block;

    Piece pieces[3];
    int n_piece = 0;
    if (straight) {
        // [first, first + block) -> bounce, whole blocks -> dst, [last - block, last) -> bounce
        pieces[n_piece++] = {bounce.get(), block};
        pieces[n_piece++] = {static_cast<uint8_t *>(dst) + (block - head), size_t(last - first) - 2 * block};
        pieces[n_piece++] = {bounce.get() + block, block};
    } else {
        pieces[n_piece++] = {bounce.get(), size_t(last - first)};
    }

    // The last block of a file is short; reading is done when the range itself is there.
    const size_t wanted = head + size;
    size_t done = 0;
    while (done < wanted) {
        Piece rest[3];
        int n_rest = 0;
        size_t skip = done;
        for (int i = 0; i < n_piece; i++) {
            const size_t cut = std::min(skip, pieces[i].size);
            skip -= cut;
            if (cut < pieces[i].size) {
                rest[n_rest++] = {static_cast<uint8_t *>(pieces[i].address) + cut, pieces[i].size - cut};
            }
        }
        const int64_t n = read_pieces(first + done, rest, n_rest);
        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            throw std::system_error(n == 0 ? EIO : int(-n), std::generic_category());
        }
        // A short read must go on at a block, or the next one would be refused. One that brings
        // less than a block means that the file has become shorter.
        const size_t next = done + n >= wanted ? wanted : round_down(done + n);
        if (next == done) {
            throw std::system_error(EIO, std::generic_category());
        }
        done = next;
    }
    if (straight) {
        std::memcpy(dst, bounce.get() + head, block - head);
        const size_t tail = size - (block - head) - pieces[1].size;
        std::memcpy(static_cast<uint8_t *>(dst) + (size - tail), bounce.get() + block, tail);
    } else {
        std::memcpy(dst, bounce.get() + head, size);
    }
}

void DirectFile::read_plain(uint64_t offset, size_t size, void * dst) const {
    size_t done = 0;
    while (done < size) {
        const Piece piece{static_cast<uint8_t *>(dst) + done, size - done};
        const int64_t n = read_pieces(offset + done, &piece, 1);
        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            throw std::system_error(n == 0 ? EIO : int(-n), std::generic_category());
        }
        done += n;
    }
    drop_cached(offset, size);
}

}  // namespace outrider
