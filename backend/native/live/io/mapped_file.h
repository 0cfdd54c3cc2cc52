// A file as memory. mapped_file_<system>.cc has what depends on the system.
#pragma once

#include <cstddef>
#include <cstdint>

#include "live/io/direct_file.h"

namespace outrider {

class MappedFile {
  public:
    // Map the open file for reading. Throws std::runtime_error, a sentence.
    explicit MappedFile(const DirectFile & file);
    ~MappedFile();
    MappedFile(const MappedFile &) = delete;
    MappedFile & operator=(const MappedFile &) = delete;

    const uint8_t * data() const { return data_; }

  private:
    const uint8_t * data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace outrider
