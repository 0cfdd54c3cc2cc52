// Reads that the kernel does by itself: many under way at once without a thread for each, into memory
// that it knows already (Linux's io_uring).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace outrider {

class ReadRing {
  public:
    struct Read {
        intptr_t handle;  // of the file
        uint64_t offset;
        void * address;
        uint32_t size;
    };
    struct Done {
        uint64_t id;
        bool whole;  // every byte of all its reads has come
    };

    // Of at most `n_read` reads at once. Null where the system has no such thing or refuses it.
    static std::unique_ptr<ReadRing> open(unsigned n_read);
    // REQUIRES: nothing is under way.
    virtual ~ReadRing() = default;

    // Makes this memory known, by and by, so that no read has to look its pages up any more. It is
    // then in memory until the ring ends. Before, and where the system does not permit it, reads
    // work all the same. Once.
    virtual void keep(std::span<const std::span<uint8_t>> memory) = 0;
    // Begins reads that wait() will report as one, under `id`. False where the system refuses: none
    // has begun. Not from two threads at once. REQUIRES: not more than n_read are under way.
    virtual bool begin(uint64_t id, std::span<const Read> reads) = 0;
    // Blocks until something has ended, or wake() was called; appends what has ended.
    virtual void wait(std::vector<Done> & done) = 0;
    // Has wait() return. As begin(): not from two threads at once.
    virtual void wake() = 0;
};

}  // namespace outrider
