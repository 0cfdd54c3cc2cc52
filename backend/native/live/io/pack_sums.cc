#include "live/io/pack_sums.h"

#include <stdexcept>
#include <utility>

#include "live/io/crc32.h"

namespace outrider {

PackSums::PackSums(std::string pack, int layer, uint64_t stride, std::vector<uint32_t> sums)
    : pack_(std::move(pack)),
      layer_(layer),
      stride_(stride),
      sums_(std::move(sums)),
      zeros_(~crc32_followed_by_zeros(~0u, stride)),
      states_(std::make_unique<std::atomic<State>[]>(sums_.size())),
      reads_(sums_.size()) {}

void PackSums::add(Expert expert, Chunk chunk, int32_t n_chunk, uint64_t place, std::span<const uint8_t> bytes) {
    std::atomic<State> & state = states_[size_t(expert)];
    if (state == State::unknown) {
        const uint32_t part = crc32_followed_by_zeros(crc32_remainder(bytes), stride_ - place - bytes.size());
        const Lock lock(mutex_);
        Read & read = reads_[size_t(expert)];
        if (!(read.chunks >> chunk & 1)) {
            read.chunks |= 1u << chunk;
            read.sum ^= part;
        }
        if (state == State::unknown && read.chunks == (1u << n_chunk) - 1) {
            const uint32_t whole = read.sum ^ zeros_;
            state = (whole ? whole : 1) == sums_[size_t(expert)] ? State::right : State::wrong;  // 0: not written
        }
    }
    if (state == State::wrong) {
        throw std::runtime_error("The pack " + pack_ + " is damaged at expert " + std::to_string(expert) +
                                 " of layer " + std::to_string(layer_) + "; delete it or write it again");
    }
}

}  // namespace outrider
