#include "live/io/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif
#if defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

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

// Return the remainder of bytes that follow others with the remainder r. Eight bytes a step (M. Kounavis, F. Berry: A
// systematic approach to building high performance software-based CRC generators, 2005).
uint32_t remainder_by_tables(std::span<const uint8_t> bytes, uint32_t r) {
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
constexpr uint32_t product(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        sum ^= a & bit ? b : 0;
        b = (b >> 1) ^ (b & 1 ? polynomial : 0);
    }
    return sum;
}

// Return r * x^n.
constexpr uint32_t shifted(uint32_t r, uint64_t n) {
    uint32_t power = 1u << 30;  // x
    for (; n != 0; n >>= 1, power = product(power, power)) {
        r = n & 1 ? product(r, power) : r;
    }
    return r;
}

#if defined(__x86_64__) && defined(__GNUC__)

// The processor multiplies polynomials: a block of 128 bits becomes one that lies `n_bit` further on and has the same
// remainder (V. Gopal and others: Fast CRC computation for generic polynomials using the PCLMULQDQ instruction, 2009).
// The instruction's product of reversed polynomials is one power too high; the factors make up for it.
struct Fold {
    uint64_t low, high;  // x^(n_bit + 63) and x^(n_bit - 1), each with the highest power in the lowest bit

    explicit constexpr Fold(uint64_t n_bit)
        : low(uint64_t(shifted(1u << 31, n_bit + 63)) << 32), high(uint64_t(shifted(1u << 31, n_bit - 1)) << 32) {}
};
constexpr size_t n_lane = 4;  // of narrow blocks that do not wait for each other
constexpr size_t n_wide_lane = 8;
constexpr Fold by_lanes{n_lane * 128};
constexpr Fold by_wide_lanes{n_wide_lane * 256};

__attribute__((target("pclmul,sse4.1"))) inline __m128i folded(__m128i block, __m128i factors, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) uint32_t remainder_by_products(std::span<const uint8_t> bytes) {
    const auto * at = reinterpret_cast<const __m128i *>(bytes.data());
    const size_t n_block = bytes.size() / sizeof(__m128i);
    if (n_block < n_lane) {
        return remainder_by_tables(bytes, 0);
    }
    __m128i lanes[n_lane];
    for (size_t i = 0; i < n_lane; i++) {
        lanes[i] = _mm_loadu_si128(at + i);
    }
    size_t n = n_lane;
    const __m128i factors = _mm_set_epi64x(int64_t(by_lanes.high), int64_t(by_lanes.low));
    for (; n + n_lane <= n_block; n += n_lane) {
        for (size_t i = 0; i < n_lane; i++) {
            lanes[i] = folded(lanes[i], factors, _mm_loadu_si128(at + n + i));
        }
    }
    uint8_t last[sizeof(lanes)];
    std::memcpy(last, lanes, sizeof(last));
    return remainder_by_tables(bytes.subspan(n * sizeof(__m128i)), remainder_by_tables(last, 0));
}

// The same with two blocks in each register. Some processors begin a product every other cycle, of any width.
__attribute__((target("vpclmulqdq,avx2"))) inline __m256i folded_wide(__m256i blocks, __m256i factors, __m256i next) {
    const __m256i low = _mm256_clmulepi64_epi128(blocks, factors, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(blocks, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

__attribute__((target("vpclmulqdq,avx2"))) uint32_t remainder_by_wide_products(std::span<const uint8_t> bytes) {
    const auto * at = reinterpret_cast<const __m256i *>(bytes.data());
    const size_t n_block = bytes.size() / sizeof(__m256i);
    if (n_block < n_wide_lane) {
        return remainder_by_tables(bytes, 0);
    }
    __m256i lanes[n_wide_lane];
    for (size_t i = 0; i < n_wide_lane; i++) {
        lanes[i] = _mm256_loadu_si256(at + i);
    }
    size_t n = n_wide_lane;
    const auto low = int64_t(by_wide_lanes.low), high = int64_t(by_wide_lanes.high);
    const __m256i factors = _mm256_set_epi64x(high, low, high, low);
    for (; n + n_wide_lane <= n_block; n += n_wide_lane) {
        for (size_t i = 0; i < n_wide_lane; i++) {
            lanes[i] = folded_wide(lanes[i], factors, _mm256_loadu_si256(at + n + i));
        }
    }
    uint8_t last[sizeof(lanes)];
    std::memcpy(last, lanes, sizeof(last));
    return remainder_by_tables(bytes.subspan(n * sizeof(__m256i)), remainder_by_tables(last, 0));
}

uint32_t remainder_by_processor(std::span<const uint8_t> bytes) {
    static const bool multiplies = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    static const bool is_wide = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2");
    return is_wide      ? remainder_by_wide_products(bytes)
           : multiplies ? remainder_by_products(bytes)
                        : remainder_by_tables(bytes, 0);
}

#elif defined(__ARM_FEATURE_CRC32)

uint32_t remainder_by_processor(std::span<const uint8_t> bytes) {
    const size_t n = bytes.size() / sizeof(uint64_t);
    uint32_t r = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t word;
        std::memcpy(&word, bytes.data() + i * sizeof(word), sizeof(word));
        r = __crc32d(r, word);
    }
    return remainder_by_tables(bytes.subspan(n * sizeof(uint64_t)), r);
}

#else

uint32_t remainder_by_processor(std::span<const uint8_t> bytes) { return remainder_by_tables(bytes, 0); }

#endif

}  // namespace

uint32_t crc32_remainder(std::span<const uint8_t> bytes) { return remainder_by_processor(bytes); }

uint32_t crc32_followed_by_zeros(uint32_t r, uint64_t n) { return shifted(r, 8 * n); }

}  // namespace outrider
