// Reading a file past the page cache. What differs by system is in direct_file_<system>.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace outrider {

// Any thread may read; reads do not share a position.
class DirectFile {
  public:
    // Opens for reading without the page cache; where the file system refuses that, with it.
    // Throws std::runtime_error with a sentence.
    explicit DirectFile(const std::string & path);
    ~DirectFile();
    DirectFile(const DirectFile &) = delete;
    DirectFile & operator=(const DirectFile &) = delete;

    // Somewhere in memory that takes the next `size` bytes of what is read.
    struct Piece {
        void * address;
        size_t size;
    };

    // Reads exactly [offset, offset + size) into dst. Short reads are continued, errors retried.
    // Throws std::runtime_error after the last try. When dst and offset are congruent modulo
    // block_bytes the data goes straight to dst, except the broken blocks at both ends.
    void read(uint64_t offset, size_t size, void * dst) const;
    // Likewise into several pieces, one after another, with one system call where they permit it:
    // where offset, addresses and sizes are multiples of block_bytes the data goes straight there.
    void read(uint64_t offset, std::span<const Piece> pieces) const;

    // Has the system forget the pages that hold these bytes, where it can.
    void drop_cached(uint64_t offset, uint64_t size) const;

    uint64_t size() const { return size_; }
    intptr_t handle() const { return handle_; }
    bool direct() const { return direct_; }
    const std::string & path() const { return path_; }

    // Offsets, sizes and addresses of direct reads are multiples of this.
    static constexpr size_t block_bytes = 4096;

  private:
    // At most so many pieces of one system call.
    static constexpr size_t max_piece = 64;

    // One system call. Returns bytes read, 0 at the end of the file, or -errno.
    int64_t read_some(uint64_t offset, std::span<const Piece> pieces) const;
    // Goes on until `wanted` bytes are there; later ones may be missing. Throws std::system_error.
    void read_all(uint64_t offset, std::span<const Piece> pieces, size_t wanted) const;
    void read_blocks(uint64_t offset, size_t size, void * dst) const;
    void scatter(uint64_t offset, size_t size, std::span<const Piece> pieces) const;
    void try_again(const std::function<void()> & read) const;
    bool is_aligned(uint64_t offset, std::span<const Piece> pieces) const;

    std::string path_;
    intptr_t handle_ = -1;
    uint64_t size_ = 0;
    bool direct_ = false;
};

}  // namespace outrider
