// One group of a panel, read a row or an element at a time. What the vector kernels do, in plain
// C++: the scalar kernels and the embedding look-up use it.
#pragma once

#include <cstdint>

#include "kernels/format.h"
#include "kernels/half.h"

namespace octavo {

// Unsigned element (row r of the panel, column c of the group).
template <SourceType S>
inline int group_element(const uint8_t* group, int r, int c) {
  using F = Format<S>;
  const int quad = c / 4;
  const int byte = r * 4 + c % 4;
  if constexpr (F::kBytesOnly) {
    return group[quad * 64 + byte];
  } else {
    int value = group[quad / 2 * 64 + byte] >> (quad % 2 * 4) & 15;
    if constexpr (F::kPlanes > 0) {
      constexpr int kQuads = 8 / F::kPlanes;
      const uint8_t plane = group[256 + quad / kQuads * 64 + byte];
      value |= (plane >> (quad % kQuads * F::kPlanes) & ((1 << F::kPlanes) - 1)) << 4;
    }
    return value;
  }
}

// kHalves: the whole-numbered scale of (row, half of the group).
template <SourceType S>
inline int half_scale(const uint8_t* group, int r, int half) {
  return static_cast<int8_t>(group[Format<S>::kElementBytes + half * 16 + r]);
}

// Scale of (row, half of the group) and the min (0 where the format has none).
template <SourceType S>
inline void group_scale(const uint8_t* head, const uint8_t* group, int r, int half, float* scale,
                        float* min) {
  using F = Format<S>;
  const uint8_t* tail = group + F::kElementBytes;
  *min = 0.0f;
  if constexpr (F::kScales == Scales::kSuperMin) {
    *scale = load_half(head + r * 2) * static_cast<float>(tail[r]);
    *min = -(load_half(head + 32 + r * 2) * static_cast<float>(tail[16 + r]));
  } else if constexpr (F::kScales == Scales::kHalves) {
    *scale = load_half(head + r * 2) * static_cast<float>(half_scale<S>(group, r, half));
  } else {
    *scale = load_half(tail + r * 2);
    if (F::kMin) *min = load_half(tail + 32 + r * 2);
  }
}

}  // namespace octavo
