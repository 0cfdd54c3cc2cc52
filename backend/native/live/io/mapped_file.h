// A file as memory. What differs by system is in mapped_file_<system>.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "live/io/direct_file.h"

namespace outrider {

class MappedFile {
  public:
    // Maps the file that `file` has open, for reading. Throws std::runtime_error with a sentence.
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
