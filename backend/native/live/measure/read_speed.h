// How fast a drive brings what the engine reads, the way the engine reads it.
#pragma once

#include <cstdint>
#include <string>

namespace outrider {

struct ReadSpeed {
    double bytes_per_s = 0;
    bool direct = false;  // past the page cache
    bool ring = false;    // by the kernel's own queue
};

// Reads pieces of `read_bytes`, a multiple of 4096, from all over a file for about `seconds`, with
// `n_read` under way at the same time, by the kernel's own queue if `ring` and if there is one, and
// by threads otherwise. Takes 2 * n_read * read_bytes of memory. Throws
// std::runtime_error with a sentence, also where the file is smaller than such a piece.
ReadSpeed measure_reads(const std::string & path, uint64_t read_bytes, int n_read, double seconds, bool ring);

}  // namespace outrider
