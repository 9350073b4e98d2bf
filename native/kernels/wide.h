// Formats whose codes stand for whole numbers of more than a byte: 8-bit floats.
//
// An e4m3 float is m * 2^x / 512, m below 16 and x from 0 to 14: a whole number below 2^18, in
// units of 1/512. By activations of 8 bits its products are exact, and so is the sum of a group's
// 32 in an int32 (below 2^30), in whatever order and pieces it is computed. So every instruction
// set may cut the numbers as it multiplies best, and all give the same bits:
//   digits    low byte first: number = sum of digit[d] * 256^d; of magnitudes, or with the last
//             digit signed. For multiplications of bytes.
//   parts     two of 16 bits: number = high * 128 + low. A float is in one of them, with 0 in the
//             other. For multiplications of 16 bits.
#pragma once

#include <cstdint>

#include "kernels/format.h"

namespace octavo {

// The whole number of the magnitude of an e4m3 code; of what stands for NaN the next in line.
constexpr int e4m3_magnitude(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  return exponent == 0 ? mantissa : (8 | mantissa) << (exponent - 1);
}

struct E4m3Numbers {
  int32_t of[256];
  constexpr E4m3Numbers() : of{} {
    for (int i = 0; i < 256; ++i) of[i] = i < 128 ? e4m3_magnitude(i) : -e4m3_magnitude(i);
  }
};
inline constexpr E4m3Numbers kE4m3Numbers{};

// Digit d of every magnitude.
struct E4m3Digits {
  alignas(64) uint8_t of[3][128];
  constexpr E4m3Digits() : of{} {
    for (int d = 0; d < 3; ++d) {
      for (int i = 0; i < 128; ++i) {
        of[d][i] = static_cast<uint8_t>(e4m3_magnitude(i) >> (d * 8));
      }
    }
  }
};
inline constexpr E4m3Digits kE4m3Digits{};

// The number that a code stands for.
template <SourceType S>
constexpr int wide_number(uint8_t code) {
  static_assert(S == SourceType::kE4M3 || S == SourceType::kE4M3_32);
  return kE4m3Numbers.of[code];
}

}  // namespace octavo
