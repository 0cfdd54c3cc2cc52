// Memory whose pages belong to a file, so that the system can write them to a drive and drop them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "live/io/page_advice.h"

namespace outrider {

class FilePages {
  public:
    // Put a new file of zeros in the place of these pages. The file has no name, so it goes with the object. Its room
    // is reserved, because a full drive would end the process later. Throws std::runtime_error, a sentence: no room, or
    // the system cannot (other than Linux).
    FilePages(void * address, size_t size, const std::string & folder);
    // The pages are memory again, all zero.
    ~FilePages();
    FilePages(const FilePages &) = delete;
    FilePages & operator=(const FilePages &) = delete;

    // Make all bytes zero.
    void clear();
    // Return the part of these bytes that is in the file.
    PageRange part(uintptr_t address, size_t n) const;

  private:
    void * address_;
    size_t size_;
    int file_ = -1;
};

}  // namespace outrider
