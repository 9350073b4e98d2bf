// Blocks of the file's quantized formats, as unsigned elements, scales and mins.
#pragma once

#include <cstdint>

#include "kernels/format.h"
#include "kernels/half.h"

namespace octavo {

// Elements of group `group` (0..kSuper-1) of a block, in column order, unsigned.
template <SourceType S>
inline void block_elements(const uint8_t* block, int group, uint8_t* out) {
  if constexpr (S == SourceType::kQ4_1) {
    for (int i = 0; i < 16; ++i) {
      out[i] = block[4 + i] & 15;
      out[i + 16] = block[4 + i] >> 4;
    }
  } else if constexpr (S == SourceType::kQ5_0) {
    const uint32_t high = load_as<uint32_t>(block + 2);
    for (int i = 0; i < 16; ++i) {
      out[i] = static_cast<uint8_t>((block[6 + i] & 15) | ((high >> i & 1) << 4));
      out[i + 16] = static_cast<uint8_t>((block[6 + i] >> 4) | ((high >> (i + 16) & 1) << 4));
    }
  } else if constexpr (S == SourceType::kQ8_0) {
    for (int i = 0; i < 32; ++i) out[i] = block[2 + i] ^ 0x80;
  } else if constexpr (S == SourceType::kQ4_K) {
    const uint8_t* q = block + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) out[i] = q[i] >> shift & 15;
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

// Q4_K: the 6-bit scale and min of group `group`.
inline void q4k_scale_min(const uint8_t* block, int group, uint8_t* scale, uint8_t* min) {
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
