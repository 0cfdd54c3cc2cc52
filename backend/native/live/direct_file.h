// Reading a file past the page cache. What differs by system is in direct_file_<system>.cc.
#pragma once

#include <cstddef>
#include <cstdint>
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

    // Reads exactly [offset, offset + size) into dst. Short reads are continued, errors retried.
    // Throws std::runtime_error after the last try. When dst and offset are congruent modulo
    // block_bytes the data goes straight to dst, except the broken blocks at both ends.
    void read(uint64_t offset, size_t size, void * dst) const;

    // Has the system forget the pages that hold these bytes, where it can.
    void drop_cached(uint64_t offset, uint64_t size) const;

    uint64_t size() const { return size_; }
    bool direct() const { return direct_; }
    const std::string & path() const { return path_; }

    // Offsets, sizes and addresses of direct reads are multiples of this.
    static constexpr size_t block_bytes = 4096;

  private:
    // One system call: up to three pieces, each [address, size). Returns bytes read, 0 at the end
    // of the file, or -errno.
    struct Piece {
        void * address;
        size_t size;
    };
    int64_t read_pieces(uint64_t offset, const Piece * pieces, int n_piece) const;
    void read_blocks(uint64_t offset, size_t size, void * dst) const;
    void read_plain(uint64_t offset, size_t size, void * dst) const;
    std::string path_;
    intptr_t handle_ = -1;
    uint64_t size_ = 0;
    bool direct_ = false;
};

}  // namespace outrider
