// Reads a file past the page cache. direct_file_<system>.cc has what depends on the system.
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
    // Open for reading past the page cache, or through it if the file system refuses. Throws std::runtime_error, a
    // sentence.
    explicit DirectFile(const std::string & path);
    ~DirectFile();
    DirectFile(const DirectFile &) = delete;
    DirectFile & operator=(const DirectFile &) = delete;

    // Memory for the next `size` bytes of a read.
    struct Piece {
        void * address;
        size_t size;
    };

    // Read exactly [offset, offset + size) into dst. Continues short reads and retries errors. Throws
    // std::runtime_error after the last try. If dst and offset are congruent modulo block_bytes, the data goes straight
    // to dst, except the partial blocks at both ends.
    void read(uint64_t offset, size_t size, void * dst) const;
    // The same into several pieces, one after another. If offset, addresses and sizes are multiples of block_bytes, the
    // data goes straight there with one system call.
    void read(uint64_t offset, std::span<const Piece> pieces) const;

    // Drop these bytes from the page cache, if the system can.
    void drop_cached(uint64_t offset, uint64_t size) const;

    uint64_t size() const { return size_; }
    intptr_t handle() const { return handle_; }
    bool direct() const { return direct_; }
    const std::string & path() const { return path_; }

    // Offsets, sizes and addresses of direct reads are multiples of this.
    static constexpr size_t block_bytes = 4096;

  private:
    static constexpr size_t max_piece = 64;  // of one system call

    // Make one system call. Return the bytes read, 0 at the end of the file, or -errno.
    int64_t read_some(uint64_t offset, std::span<const Piece> pieces) const;
    // Read at least `wanted` bytes. Throws std::system_error.
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
