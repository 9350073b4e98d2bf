// Rows of activations as the sets that multiply bfloat16 have them.
//
// A group of 32 is 64 bytes, of every four columns the middle two swapped: a product takes columns
// 4j and 4j+2, and 4j+1 and 4j+3, as pairs, which is how elements of weights come out of the bytes
// of a panel. Numbers are kept times 2^64, since elements of weights are kept times 2^-112 or so:
// their products are then far from the smallest float, at which tiles round to zero.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/panel.h"

namespace octavo {

constexpr float kBf16Unit = 0x1p64f;  // what 1 is kept as

// Place in a group of the column that lies at `at`, and the reverse.
constexpr int bf16_column(int at) {
  constexpr int kSwapped[4] = {0, 2, 1, 3};
  return at / 4 * 4 + kSwapped[at % 4];
}

inline void read_bf16_group(const uint8_t* from, float* x) {
  for (int i = 0; i < kGroup; ++i) {
    uint16_t half;
    std::memcpy(&half, from + i * 2, 2);
    x[bf16_column(i)] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16) / kBf16Unit;
  }
}

}  // namespace octavo
