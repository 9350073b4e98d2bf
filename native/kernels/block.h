// Blocks of the file's quantized types, as unsigned elements, scales and mins. Those whose elements
// are indices into tables of vectors are in table_block.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/format.h"
#include "kernels/half.h"

namespace octavo {

// A type's block in the file. kPanel: whose panels it is kept as.
template <int kBlockColumns, int kBlockBytes, SourceType P>
struct BlockOf {
  static constexpr int kColumns = kBlockColumns;
  static constexpr int kBytes = kBlockBytes;
  static constexpr SourceType kPanel = P;
};

template <SourceType T>
struct Block;
template <>
struct Block<SourceType::kQ4_0> : BlockOf<32, 18, SourceType::kQ4_0> {};
template <>
struct Block<SourceType::kQ4_1> : BlockOf<32, 20, SourceType::kQ4_1> {};
template <>
struct Block<SourceType::kQ5_0> : BlockOf<32, 22, SourceType::kQ5_0> {};
template <>
struct Block<SourceType::kQ5_1> : BlockOf<32, 24, SourceType::kQ5_1> {};
template <>
struct Block<SourceType::kQ8_0> : BlockOf<32, 34, SourceType::kQ8_0> {};
template <>
struct Block<SourceType::kQ2_K> : BlockOf<256, 84, SourceType::kQ2_K> {};
template <>
struct Block<SourceType::kQ3_K> : BlockOf<256, 110, SourceType::kQ3_K> {};
template <>
struct Block<SourceType::kQ4_K> : BlockOf<256, 144, SourceType::kQ4_K> {};
template <>
struct Block<SourceType::kQ5_K> : BlockOf<256, 176, SourceType::kQ5_K> {};
template <>
struct Block<SourceType::kQ6_K> : BlockOf<256, 210, SourceType::kQ6_K> {};
template <>
struct Block<SourceType::kIQ4_NL> : BlockOf<32, 18, SourceType::kIQ4_NL> {};
template <>
struct Block<SourceType::kNF4> : BlockOf<32, 18, SourceType::kNF4> {};
template <>
struct Block<SourceType::kFP4> : BlockOf<32, 18, SourceType::kFP4> {};
template <>
struct Block<SourceType::kIQ4_XS> : BlockOf<256, 136, SourceType::kIQ4_XS> {};
template <>
struct Block<SourceType::kTQ1_0> : BlockOf<256, 54, SourceType::kTQ2_0> {};
template <>
struct Block<SourceType::kTQ2_0> : BlockOf<256, 66, SourceType::kTQ2_0> {};
template <>
struct Block<SourceType::kMXFP4> : BlockOf<32, 17, SourceType::kMXFP4> {};
template <>
struct Block<SourceType::kE4M3> : BlockOf<32, 36, SourceType::kE4M3> {};
template <>
struct Block<SourceType::kNVFP4> : BlockOf<64, 36, SourceType::kNVFP4> {};
template <>
struct Block<SourceType::kNVFP4_D> : BlockOf<32, 22, SourceType::kNVFP4> {};
template <>
struct Block<SourceType::kQ4_Z> : BlockOf<32, 19, SourceType::kQ4_Z> {};
template <>
struct Block<SourceType::kQ4_Z128> : BlockOf<32, 20, SourceType::kQ4_Z128> {};
template <>
struct Block<SourceType::kQ8_Z128> : BlockOf<32, 36, SourceType::kQ8_Z128> {};
template <>
struct Block<SourceType::kQ8_Z> : BlockOf<32, 36, SourceType::kQ8_Z> {};
template <>
struct Block<SourceType::kE4M3_32> : BlockOf<32, 36, SourceType::kE4M3_32> {};
template <>
struct Block<SourceType::kQ1_0> : BlockOf<128, 18, SourceType::kQ4_0> {};

static_assert(std::endian::native == std::endian::little, "blocks are read as the file has them");

// Elements are taken eight at a time, since compilers make little of the plain loops.

// Eight bytes of the same value.
constexpr uint64_t eight_of(uint8_t value) {
  return value * 0x0101010101010101u;
}

// `width` bits of each of eight bytes, from bit `shift` on.
template <int width>
inline uint64_t eight_fields(const uint8_t* bytes, int shift) {
  return load_as<uint64_t>(bytes) >> shift & eight_of((1 << width) - 1);
}

// The low and the high nibbles of 16 bytes, as 16 + 16 elements.
inline void split_nibbles(const uint8_t* bytes, uint8_t* out) {
  for (int i = 0; i < 16; i += 8) {
    const uint64_t low = eight_fields<4>(bytes + i, 0);
    const uint64_t high = eight_fields<4>(bytes + i, 4);
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

// `width` bits of each of 32 bytes, from bit `shift` on.
template <int width>
inline void fields(const uint8_t* bytes, int shift, uint8_t* out) {
  for (int i = 0; i < 32; i += 8) {
    const uint64_t low = eight_fields<width>(bytes + i, shift);
    std::memcpy(out + i, &low, 8);
  }
}

// The same, as the bits above the `below` bits of elements.
template <int width, int below>
inline void add_fields(const uint8_t* bytes, int shift, uint8_t* out) {
  for (int i = 0; i < 32; i += 8) {
    const uint64_t all = load_as<uint64_t>(out + i) | eight_fields<width>(bytes + i, shift)
                                                          << below;
    std::memcpy(out + i, &all, 8);
  }
}

// The nibbles of group `group` of a block of 256: 32 bytes hold two groups.
inline void super_nibbles(const uint8_t* nibbles, int group, uint8_t* out) {
  fields<4>(nibbles + group / 2 * 32, group % 2 * 4, out);
}

// TQ1_0: the digit 0..2 of column `c` of a block. A byte is five digits (of the last 4 bytes four),
// scaled such that the high byte of 3 * (byte * 3^n) is digit n.
inline uint8_t ternary_digit(const uint8_t* block, int c) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const int at = c < 160 ? c % 32 : c < 240 ? 32 + c % 16 : 48 + c % 4;
  const int digit = c < 160 ? c / 32 : c < 240 ? (c - 160) / 16 : (c - 240) / 4;
  const auto shifted = static_cast<uint8_t>(block[at] * kPowers[digit]);
  return static_cast<uint8_t>(shifted * 3 >> 8);
}

// Elements of group `group` of a block, in column order, unsigned.
template <SourceType T>
inline void block_elements(const uint8_t* block, int group, uint8_t* out) {
  if constexpr (T == SourceType::kQ4_0 || T == SourceType::kIQ4_NL || T == SourceType::kNF4 ||
                T == SourceType::kFP4) {
    split_nibbles(block + 2, out);
  } else if constexpr (T == SourceType::kQ4_1) {
    split_nibbles(block + 4, out);
  } else if constexpr (T == SourceType::kMXFP4) {
    split_nibbles(block + 1, out);
  } else if constexpr (T == SourceType::kIQ4_XS) {
    split_nibbles(block + 8 + group * 16, out);
  } else if constexpr (T == SourceType::kQ5_0) {
    split_nibbles(block + 6, out);
    add_fifth_bits(load_as<uint32_t>(block + 2), out);
  } else if constexpr (T == SourceType::kQ5_1) {
    split_nibbles(block + 8, out);
    add_fifth_bits(load_as<uint32_t>(block + 4), out);
  } else if constexpr (T == SourceType::kQ8_0) {
    for (int i = 0; i < 32; i += 8) {
      const uint64_t eight = load_as<uint64_t>(block + 2 + i) ^ eight_of(0x80);
      std::memcpy(out + i, &eight, 8);
    }
  } else if constexpr (T == SourceType::kE4M3 || T == SourceType::kE4M3_32 ||
                       T == SourceType::kQ8_Z128 || T == SourceType::kQ8_Z) {
    std::memcpy(out, block + 4, 32);
  } else if constexpr (T == SourceType::kQ4_Z) {
    split_nibbles(block + 3, out);
  } else if constexpr (T == SourceType::kQ4_Z128) {
    split_nibbles(block + 4, out);
  } else if constexpr (T == SourceType::kNVFP4_D) {
    for (int i = 0; i < 16; ++i) {
      out[2 * i] = block[6 + i] & 15;
      out[2 * i + 1] = block[6 + i] >> 4;
    }
  } else if constexpr (T == SourceType::kNVFP4) {  // 8 bytes hold 16 codes
    for (int i = 0; i < 16; ++i) {
      const uint8_t both = block[4 + group * 16 + i];
      out[i / 8 * 16 + i % 8] = both & 15;
      out[i / 8 * 16 + 8 + i % 8] = both >> 4;
    }
  } else if constexpr (T == SourceType::kQ2_K) {
    fields<2>(block + 16 + group / 4 * 32, group % 4 * 2, out);
  } else if constexpr (T == SourceType::kQ3_K) {
    fields<2>(block + 32 + group / 4 * 32, group % 4 * 2, out);
    add_fields<1, 2>(block, group, out);
  } else if constexpr (T == SourceType::kQ4_K) {
    super_nibbles(block + 16, group, out);
  } else if constexpr (T == SourceType::kQ5_K) {
    super_nibbles(block + 48, group, out);
    add_fields<1, 4>(block + 16, group, out);  // bit `group` of byte i is of element i
  } else if constexpr (T == SourceType::kQ6_K) {
    const int quarter = group % 4;  // of the half block that group / 4 names
    const uint8_t* low = block + group / 4 * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + group / 4 * 32;
    fields<4>(low, quarter / 2 * 4, out);
    add_fields<2, 4>(high, quarter * 2, out);
  } else if constexpr (T == SourceType::kTQ1_0) {
    for (int i = 0; i < 32; ++i) out[i] = ternary_digit(block, group * 32 + i);
  } else if constexpr (T == SourceType::kTQ2_0) {
    fields<2>(block + group / 4 * 32, group % 4 * 2, out);
  } else {
    static_assert(T == SourceType::kQ1_0);  // a bit is -1 or 1, as elements of Q4_0 7 or 9
    const auto bits = load_as<uint32_t>(block + 2 + group * 4);
    for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(7 + (bits >> i & 1) * 2);
  }
}

// Where the file keeps a block's scale. Every format with a min has it right after its scale.
template <SourceType T>
inline const uint8_t* block_scale(const uint8_t* block) {
  switch (T) {
    case SourceType::kQ6_K:
      return block + 208;
    case SourceType::kQ2_K:
      return block + 80;
    case SourceType::kQ3_K:
      return block + 108;
    case SourceType::kTQ1_0:
      return block + 52;
    case SourceType::kTQ2_0:
      return block + 64;
    default:
      return block;
  }
}

// The whole-numbered scale of half `half` of group `group`. Q2_K: the min times 16 besides.
template <SourceType T>
inline uint8_t half_scale_byte(const uint8_t* block, int group, int half) {
  const int i = group * 2 + half;
  if constexpr (T == SourceType::kNVFP4) {
    return block[i] == 0x7f ? 0 : block[i];  // as it is read by others
  } else if constexpr (T == SourceType::kNVFP4_D) {
    return block[4 + half];
  } else if constexpr (T == SourceType::kQ2_K) {
    return block[i];
  } else if constexpr (T == SourceType::kQ3_K) {
    const uint8_t* s = block + 96;
    const int low = s[i % 8] >> i / 8 * 4 & 15;
    const int high = s[8 + i % 4] >> i / 4 * 2 & 3;
    return static_cast<uint8_t>((low | high << 4) - 32);
  } else {
    static_assert(T == SourceType::kQ6_K);
    return block[192 + i];
  }
}

// Formats with a float32 scale: that of the block, times what its unit is in.
template <SourceType T>
inline float float_scale(const uint8_t* block) {
  if constexpr (T == SourceType::kNVFP4) {
    return 0x1p7f;  // codes are doubled and the e4m3 scales read as 256 times less
  } else if constexpr (T == SourceType::kNVFP4_D) {
    return load_as<float>(block) * 0x1p7f;
  } else {
    static_assert(T == SourceType::kE4M3 || T == SourceType::kE4M3_32);
    return load_as<float>(block) * 0x1p-9f;
  }
}

// The zero point of formats that have one.
template <SourceType T>
inline int zero_point(const uint8_t* block) {
  if constexpr (T == SourceType::kQ4_Z) return block[2];
  return load_as<int16_t>(block + 2);
}

// IQ4_XS: the whole-numbered scale of group `group`.
inline uint8_t super_scale(const uint8_t* block, int group) {
  const int low = block[4 + group / 2] >> group % 2 * 4 & 15;
  const int high = load_as<uint16_t>(block + 2) >> group * 2 & 3;
  return static_cast<uint8_t>((low | high << 4) - 32);
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
