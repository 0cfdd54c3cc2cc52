#include "live/io/pack_sums.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace outrider {
namespace {

constexpr uint32_t polynomial = 0xEDB88320;  // CRC-32, bits reversed
constexpr size_t n_table = 8;

using Tables = std::array<std::array<uint32_t, 256>, n_table>;

constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t r = i;
        for (int bit = 0; bit < 8; bit++) {
            r = (r >> 1) ^ (r & 1 ? polynomial : 0);
        }
        tables[0][i] = r;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (size_t t = 1; t < n_table; t++) {
            tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
        }
    }
    return tables;
}

constexpr Tables tables = make_tables();

// Return the remainder of the bytes, without the start and end values of CRC-32, so that it is linear. Eight bytes a
// step (M. Kounavis, F. Berry: A systematic approach to building high performance software-based CRC generators, 2005).
uint32_t remainder_of(std::span<const uint8_t> bytes, uint32_t r = 0) {
    const uint8_t * at = bytes.data();
    size_t n = bytes.size();
    for (; n >= 8; n -= 8, at += 8) {
        uint32_t low, high;
        std::memcpy(&low, at, 4);
        std::memcpy(&high, at + 4, 4);
        low ^= r;
        r = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
            tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
    for (; n > 0; n--) {
        r = (r >> 8) ^ tables[0][(r ^ *at++) & 0xFF];
    }
    return r;
}

// Multiply two polynomials modulo CRC-32's. The highest bit is the coefficient of 1.
uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        sum ^= a & bit ? b : 0;
        b = (b >> 1) ^ (b & 1 ? polynomial : 0);
    }
    return sum;
}

// Return the remainder after n more zero bytes: r * x^(8 n).
uint32_t followed_by_zeros(uint32_t r, uint64_t n) {
    uint32_t power = 1u << 23;  // x^8
    for (; n != 0; n >>= 1, power = product(power, power)) {
        r = n & 1 ? product(r, power) : r;
    }
    return r;
}

}  // namespace

PackSums::PackSums(std::string pack, int layer, uint64_t stride, std::vector<uint32_t> sums)
    : pack_(std::move(pack)),
      layer_(layer),
      stride_(stride),
      sums_(std::move(sums)),
      zeros_(~followed_by_zeros(~0u, stride)),
      states_(std::make_unique<std::atomic<State>[]>(sums_.size())),
      reads_(sums_.size()) {}

void PackSums::add(Expert expert, Chunk chunk, int32_t n_chunk, uint64_t place, std::span<const uint8_t> bytes) {
    std::atomic<State> & state = states_[size_t(expert)];
    if (state == State::unknown) {
        const uint32_t part = followed_by_zeros(remainder_of(bytes), stride_ - place - bytes.size());
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
