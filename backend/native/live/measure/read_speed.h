// Measures a drive with reads like the engine's.
#pragma once

#include <cstdint>
#include <string>

namespace outrider {

struct ReadSpeed {
    double bytes_per_s = 0;
    bool direct = false;  // past the page cache
    bool ring = false;    // by the kernel's own queue
};

// Read random pieces of `read_bytes`, a multiple of 4096, from a file for about `seconds`, with `n_read` reads in
// flight: in the kernel's own queue if `ring` and if there is one, else in threads. Takes 2 * n_read * read_bytes of
// memory. Throws std::runtime_error, a sentence, also if the file is smaller than a piece.
ReadSpeed measure_reads(const std::string & path, uint64_t read_bytes, int n_read, double seconds, bool ring);

}  // namespace outrider
