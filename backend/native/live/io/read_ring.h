// A queue of reads in the kernel (Linux's io_uring): many in flight without a thread for each, into registered memory.
#pragma once

#include <chrono>
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
        bool whole;  // all its reads are complete
    };
    using Time = std::chrono::steady_clock::time_point;

    // Open a ring of at most `n_read` reads in flight. Return null if the system has none or refuses.
    static std::unique_ptr<ReadRing> open(unsigned n_read);
    // REQUIRES: nothing is in flight.
    virtual ~ReadRing() = default;

    // Register this memory in the background, so that reads need not look up its pages. Registered memory stays in RAM
    // until the ring ends. Reads work without it too. Call once.
    virtual void keep(std::span<const std::span<uint8_t>> memory) = 0;
    // Begin reads that wait() reports as one, as `id`. Return false if the system refuses; none has begun then. One
    // thread at a time. REQUIRES: at most n_read reads are in flight.
    virtual bool begin(uint64_t id, std::span<const Read> reads) = 0;
    // Append the reads that have ended. If nothing has, wait until something has, at most until `until`. Return
    // whether it waited. `alone`: no reads begin meanwhile; the thread then wakes up once, not for each read. One
    // thread at a time.
    virtual bool wait(std::vector<Done> & done, Time until, bool alone) = 0;
};

}  // namespace outrider
