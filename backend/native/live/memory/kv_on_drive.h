// Lets llama.cpp put the attention cache into a file (Klotski, section 6.1: the KV cache where memory has no room for
// it). llama.cpp offers no such choice. It allocates the cache as a buffer of the CPU's type and clears it, which no
// other large buffer is. So while this object lives, buffers of this thread get another function for clearing, which
// replaces their pages by those of a file.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "live/io/page_advice.h"

namespace outrider {

class KvOnDrive {
  public:
    // For buffers from n_byte_min on. folder: of the file. One object at a time; throws std::logic_error for another.
    KvOnDrive(std::string folder, size_t n_byte_min);
    ~KvOnDrive() { close(); }
    KvOnDrive(const KvOnDrive &) = delete;
    KvOnDrive & operator=(const KvOnDrive &) = delete;

    // Leave later buffers alone. Those so far stay in their files until llama.cpp frees them. May be called twice.
    void close();
    // A sentence, if a file could not be had. The context is then not to be used.
    const std::string & error() const { return error_; }
    // Return the tensors of the caches that were placed so far: name, pages. The pages are valid until llama.cpp frees
    // the cache.
    std::vector<std::pair<std::string, PageRange>> tensors() const;

  private:
    friend struct KvBuffers;

    const std::string folder_;
    const size_t n_byte_min_;
    std::string error_;
};

}  // namespace outrider
