// Checksums of a pack: the first read of each expert is compared with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/types.h"
#include "live/ggml/thread_safety.h"

namespace outrider {

// The checksums of one layer's experts. An expert's range may be read in chunks, in any order; the bytes between them
// are zero. Any thread may call add().
class PackSums {
  public:
    // `pack`: its name, for the user. `layer`: the model's number. `sums`: [expert], CRC-32 (as zlib's) of a range of
    // `stride` bytes.
    PackSums(std::string pack, int layer, uint64_t stride, std::vector<uint32_t> sums);

    // Bytes of `expert` were read: chunk `chunk` of `n_chunk`, at `place` in its range. Throws std::runtime_error when
    // the whole range was read and differs, and from then on for this expert.
    void add(Expert expert, Chunk chunk, int32_t n_chunk, uint64_t place, std::span<const uint8_t> bytes);
    // Return whether the expert was read and is right. No further read is compared.
    bool is_right(Expert expert) const { return states_[size_t(expert)] == State::right; }

  private:
    enum class State : uint8_t { unknown, right, wrong };
    struct Read {
        uint32_t chunks = 0;  // bit per chunk
        uint32_t sum = 0;  // of these, as CRC without start and end values
    };

    const std::string pack_;
    const int layer_;
    const uint64_t stride_;
    const std::vector<uint32_t> sums_;
    const uint32_t zeros_;  // the checksum of a range of zeros
    std::unique_ptr<std::atomic<State>[]> states_;  // [expert]
    Mutex mutex_;
    std::vector<Read> reads_ GUARDED_BY(mutex_);  // [expert]
};

}  // namespace outrider
