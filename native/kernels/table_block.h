// Blocks of the file's types whose elements index tables of vectors (IQ1, IQ2, IQ3), as 4-bit codes
// into 16 integers, whole-numbered scales of 16 columns each, and a scale of the block:
//   w = block scale * (2 * s + 1) * values[code]
// which holds the format's numbers exactly.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/block.h"
#include "kernels/grids.h"

namespace octavo {

template <>
struct Block<SourceType::kIQ2_XXS> : BlockOf<256, 66, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ2_XS> : BlockOf<256, 74, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ2_S> : BlockOf<256, 82, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ3_XXS> : BlockOf<256, 98, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ3_S> : BlockOf<256, 110, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ1_S> : BlockOf<256, 50, SourceType::kTable> {};
template <>
struct Block<SourceType::kIQ1_M> : BlockOf<256, 56, SourceType::kTable> {};

// Calls f.template operator()<T>() for a type that this file knows; false for any other.
template <typename F>
bool with_table_type(SourceType type, F&& f) {
  switch (type) {
    case SourceType::kIQ2_XXS:
      f.template operator()<SourceType::kIQ2_XXS>();
      return true;
    case SourceType::kIQ2_XS:
      f.template operator()<SourceType::kIQ2_XS>();
      return true;
    case SourceType::kIQ2_S:
      f.template operator()<SourceType::kIQ2_S>();
      return true;
    case SourceType::kIQ3_XXS:
      f.template operator()<SourceType::kIQ3_XXS>();
      return true;
    case SourceType::kIQ3_S:
      f.template operator()<SourceType::kIQ3_S>();
      return true;
    case SourceType::kIQ1_S:
      f.template operator()<SourceType::kIQ1_S>();
      return true;
    case SourceType::kIQ1_M:
      f.template operator()<SourceType::kIQ1_M>();
      return true;
    default:
      return false;
  }
}

// What the codes mean: the digit of a grid, and above it (IQ2, IQ3) the sign or (IQ1) whether the
// eighth that is added to a digit less 1 is taken away instead; in eighths.
constexpr CodeTable kIq2Values = {8, 25, 43, 0, -8, -25, -43, 0};
constexpr CodeTable kIq3xxsValues = {4,  12,  20,  28,  36,  44,  52,  62,
                                     -4, -12, -20, -28, -36, -44, -52, -62};
constexpr CodeTable kIq3sValues = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
constexpr CodeTable kIq1Values = {-7, 1, 9, 0, -9, -1, 7, 0};

template <SourceType T>
constexpr const CodeTable& table_values() {
  if constexpr (T == SourceType::kIQ3_XXS) {
    return kIq3xxsValues;
  } else if constexpr (T == SourceType::kIQ3_S) {
    return kIq3sValues;
  } else if constexpr (T == SourceType::kIQ1_S || T == SourceType::kIQ1_M) {
    return kIq1Values;
  } else {
    return kIq2Values;
  }
}

// Eight signs from seven bits: the eighth makes their number even.
inline int even_signs(uint32_t seven) {
  return static_cast<int>(seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7);
}

// Eight codes of the digits of one vector; bit i of `above` is what stands above digit i.
inline void codes_of_eight(uint16_t grid, int above, uint8_t* out) {
  for (int i = 0; i < 8; ++i) {
    out[i] = static_cast<uint8_t>((grid >> i * 2 & 3) | (above >> i & 1) << 2);
  }
}

// The same of two vectors of four digits.
inline void codes_of_fours(uint16_t first, uint16_t second, int above, uint8_t* out) {
  for (int i = 0; i < 8; ++i) {
    const int digit = (i < 4 ? first : second) >> i % 4 * 3 & 7;
    out[i] = static_cast<uint8_t>(digit | (above >> i & 1) << 3);
  }
}

// Codes of columns 8 * eighth .. 8 * eighth + 7 of group `group` of a block.
template <SourceType T>
inline void table_codes(const uint8_t* block, int group, int eighth, uint8_t* out) {
  const int at = group * 4 + eighth;
  if constexpr (T == SourceType::kIQ2_XXS) {
    const uint8_t* q = block + 2 + group * 8;
    const uint32_t signs = load_as<uint32_t>(q + 4) >> eighth * 7 & 127;
    codes_of_eight(kGridIq2xxs[q[eighth]], even_signs(signs), out);
  } else if constexpr (T == SourceType::kIQ2_XS) {
    const auto q = load_as<uint16_t>(block + 2 + at * 2);
    codes_of_eight(kGridIq2xs[q & 511], even_signs(q >> 9), out);
  } else if constexpr (T == SourceType::kIQ2_S) {
    const int high = block[66 + group] >> eighth * 2 & 3;
    codes_of_eight(kGridIq2s[block[2 + at] | high << 8], block[34 + at], out);
  } else if constexpr (T == SourceType::kIQ3_XXS) {
    const uint8_t* q = block + 2 + at * 2;
    const uint32_t signs = load_as<uint32_t>(block + 66 + group * 4) >> eighth * 7 & 127;
    codes_of_fours(kGridIq3xxs[q[0]], kGridIq3xxs[q[1]], even_signs(signs), out);
  } else if constexpr (T == SourceType::kIQ3_S) {
    const uint8_t* q = block + 2 + at * 2;
    const int high = block[66 + group] >> eighth * 2;
    codes_of_fours(kGridIq3s[q[0] | (high & 1) << 8], kGridIq3s[q[1] | (high & 2) << 7],
                   block[74 + at], out);
  } else if constexpr (T == SourceType::kIQ1_S) {
    const auto h = load_as<uint16_t>(block + 34 + group * 2);
    const int high = h >> eighth * 3 & 7;
    codes_of_eight(kGridIq1[block[2 + at] | high << 8], (h & 0x8000) != 0 ? 255 : 0, out);
  } else {
    static_assert(T == SourceType::kIQ1_M);
    const int h = block[32 + at / 2] >> at % 2 * 4;
    codes_of_eight(kGridIq1[block[at] | (h & 7) << 8], (h & 8) != 0 ? 255 : 0, out);
  }
}

// The whole-numbered scale 2 * s + 1 of half `half` of group `group`.
template <SourceType T>
inline int table_half_scale(const uint8_t* block, int group, int half) {
  const auto nibble = [&](int at, int i) { return block[at + i / 2] >> i % 2 * 4 & 15; };
  int s = 0;
  if constexpr (T == SourceType::kIQ2_XXS) {
    s = block[2 + group * 8 + 7] >> 4;
  } else if constexpr (T == SourceType::kIQ2_XS) {
    s = nibble(66, group * 2 + half);
  } else if constexpr (T == SourceType::kIQ2_S) {
    s = nibble(74, group * 2 + half);
  } else if constexpr (T == SourceType::kIQ3_XXS) {
    s = block[66 + group * 4 + 3] >> 4;
  } else if constexpr (T == SourceType::kIQ3_S) {
    s = nibble(106, group);
  } else if constexpr (T == SourceType::kIQ1_S) {
    s = block[34 + group * 2 + 1] >> 4 & 7;
  } else {
    static_assert(T == SourceType::kIQ1_M);
    const int i = group * 2 + half;
    s = load_as<uint16_t>(block + 48 + i / 4 * 2) >> i % 4 * 3 & 7;
  }
  return 2 * s + 1;
}

// The scale of the block, of which the format takes an eighth or a quarter.
template <SourceType T>
inline float table_block_scale(const uint8_t* block) {
  if constexpr (T == SourceType::kIQ1_M) {  // a quarter of the float16 in each of the four scales
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= (block[48 + i * 2 + 1] >> 4 & 15u) << i * 4;
    return half_to_float(static_cast<uint16_t>(bits)) * 0.125f;
  } else if constexpr (T == SourceType::kIQ3_XXS) {
    return load_half(block) * 0.25f;
  } else if constexpr (T == SourceType::kIQ3_S) {
    return load_half(block);
  } else {
    return load_half(block) * 0.125f;
  }
}

}  // namespace octavo
