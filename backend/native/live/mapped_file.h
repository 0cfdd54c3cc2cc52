// A file as memory. What differs by system is in mapped_file_<system>.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outrider {

class MappedFile {
  public:
    // For reading. Throws std::runtime_error with a sentence.
    explicit MappedFile(const std::string & path);
    ~MappedFile();
    MappedFile(const MappedFile &) = delete;
    MappedFile & operator=(const MappedFile &) = delete;

    const uint8_t * data() const { return data_; }
    size_t size() const { return size_; }

  private:
    const uint8_t * data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace outrider
