// Blocks of the file's quantized formats, as unsigned elements, scales and mins.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/format.h"
#include "kernels/half.h"

namespace octavo {

static_assert(std::endian::native == std::endian::little, "blocks are read as the file has them");

// The low and the high nibbles of 16 bytes, as 16 + 16 elements; eight at a time, since compilers
// make little of the plain loop.
inline void split_nibbles(const uint8_t* bytes, uint8_t* out) {
  for (int i = 0; i < 16; i += 8) {
    const auto both = load_as<uint64_t>(bytes + i);
    const uint64_t low = both & 0x0f0f0f0f0f0f0f0fu;
    const uint64_t high = both >> 4 & 0x0f0f0f0f0f0f0f0fu;
    std::memcpy(out + i, &low, 8);
    std::memcpy(out + 16 + i, &high, 8);
  }
}

// Eight bytes, byte i being 16 if bit i of `bits` is set, else 0.
inline uint64_t spread_bits(uint32_t bits) {
  const uint64_t one_each = (bits & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
  return (one_each + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
}

// Sets bit 4 of the elements whose bit in `high` is set.
inline void add_fifth_bits(uint32_t high, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t eight = load_as<uint64_t>(out + i * 8) | spread_bits(high >> (i * 8));
    std::memcpy(out + i * 8, &eight, 8);
  }
}

// The nibbles of group `group` of a block of 256: 32 bytes hold two groups.
inline void super_nibbles(const uint8_t* nibbles, int group, uint8_t* out) {
  const uint8_t* q = nibbles + group / 2 * 32;
  const int shift = group % 2 * 4;
  for (int i = 0; i < 32; ++i) out[i] = q[i] >> shift & 15;
}

// Elements of group `group` (0..kSuper-1) of a block, in column order, unsigned.
template <SourceType S>
inline void block_elements(const uint8_t* block, int group, uint8_t* out) {
  if constexpr (S == SourceType::kQ4_0) {
    split_nibbles(block + 2, out);
  } else if constexpr (S == SourceType::kQ4_1) {
    split_nibbles(block + 4, out);
  } else if constexpr (S == SourceType::kQ5_0) {
    split_nibbles(block + 6, out);
    add_fifth_bits(load_as<uint32_t>(block + 2), out);
  } else if constexpr (S == SourceType::kQ5_1) {
    split_nibbles(block + 8, out);
    add_fifth_bits(load_as<uint32_t>(block + 4), out);
  } else if constexpr (S == SourceType::kQ8_0) {
    for (int i = 0; i < 32; ++i) out[i] = block[2 + i] ^ 0x80;
  } else if constexpr (S == SourceType::kQ4_K) {
    super_nibbles(block + 16, group, out);
  } else if constexpr (S == SourceType::kQ5_K) {
    super_nibbles(block + 48, group, out);
    const uint8_t* high = block + 16;  // bit `group` of byte i is of element i
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<uint8_t>(out[i] | (high[i] >> group & 1) << 4);
    }
  } else if constexpr (S == SourceType::kQ6_K) {
    const int quarter = group % 4;  // of the half block that group / 4 names
    const uint8_t* low = block + group / 4 * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + group / 4 * 32;
    const int low_shift = quarter / 2 * 4;
    const int high_shift = quarter * 2;
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    }
  }
}

// Where the file keeps a block's scales. Every format with a min has it right after its scale.
template <SourceType S>
inline const uint8_t* block_scale(const uint8_t* block) {
  return S == SourceType::kQ6_K ? block + 208 : block;
}

// Q6_K: the int8 scales of the two halves of group `group`.
inline const uint8_t* half_scales(const uint8_t* block, int group) {
  return block + 192 + group * 2;
}

// Q4_K, Q5_K: the 6-bit scale and min of group `group`.
inline void super_scale_min(const uint8_t* block, int group, uint8_t* scale, uint8_t* min) {
  const uint8_t* s = block + 4;
  if (group < 4) {
    *scale = s[group] & 63;
    *min = s[group + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((s[group + 4] & 15) | (s[group - 4] >> 6) << 4);
    *min = static_cast<uint8_t>((s[group + 4] >> 4) | (s[group] >> 6) << 4);
  }
}

}  // namespace octavo
