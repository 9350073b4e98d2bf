// One group of a panel, read a row or an element at a time. What the vector kernels do, in plain
// C++: the scalar kernels and the embedding look-up use it.
#pragma once

#include <cstdint>

#include "kernels/format.h"
#include "kernels/half.h"
#include "kernels/wide.h"

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
    constexpr int kBits = F::kLineBits;
    constexpr int kLineQuads = 8 / kBits;
    const int shift = quad % kLineQuads * kBits;
    int value = group[quad / kLineQuads * 64 + byte] >> shift & ((1 << kBits) - 1);
    if constexpr (F::kPlanes > 0) {
      constexpr int kQuads = 8 / F::kPlanes;
      const uint8_t plane = group[F::kLines * 64 + quad / kQuads * 64 + byte];
      value |= (plane >> (quad % kQuads * F::kPlanes) & ((1 << F::kPlanes) - 1)) << kBits;
    }
    return value;
  }
}

// The same as the kernels multiply it: a code looked up.
template <SourceType S>
inline int group_factor(const uint8_t* head, const uint8_t* group, int r, int c) {
  const int element = group_element<S>(group, r, c);
  if constexpr (kIsWide<S>) return wide_number<S>(static_cast<uint8_t>(element));
  if constexpr (Format<S>::kCodes) return code_table<S>(head)[element];
  return element;
}

// kHalves: the scale of (row, half of the group), a whole number unless kHalvesFloat.
template <SourceType S>
inline auto half_scale(const uint8_t* group, int r, int half) {
  const uint8_t byte = group[Format<S>::kElementBytes + half * 16 + r];
  if constexpr (Format<S>::kHalvesFloat) {
    return small_e4m3(byte);
  } else {
    return Format<S>::kHalvesMin ? byte & 15 : static_cast<int8_t>(byte);
  }
}

// kHalvesMin: the whole-numbered min.
template <SourceType S>
inline int half_min(const uint8_t* group, int r, int half) {
  return group[Format<S>::kElementBytes + half * 16 + r] >> 4;
}

// Formats with heads: the block's scale of a row.
template <SourceType S>
inline float head_scale(const uint8_t* head, int r) {
  return Format<S>::kFloatHead ? load_as<float>(head + r * 4) : load_half(head + r * 2);
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
  } else if constexpr (F::kHalves) {
    *scale = head_scale<S>(head, r) * static_cast<float>(half_scale<S>(group, r, half));
    if constexpr (F::kHalvesMin) {
      const auto m = static_cast<float>(half_min<S>(group, r, half));
      *min = -(load_half(head + 32 + r * 2) * m);
    }
  } else if constexpr (F::kScales == Scales::kFloat) {
    *scale = head_scale<S>(head, r);
  } else if constexpr (F::kScales == Scales::kZero) {
    *scale = load_half(tail + r * 2);
    *min = -(*scale * static_cast<float>(tail[32 + r]));
  } else if constexpr (F::kScales == Scales::kZeroBlock) {
    *scale = load_half(head + r * 2);
    *min = -(*scale * static_cast<float>(load_as<int16_t>(head + 32 + r * 2)));
  } else if constexpr (F::kScales == Scales::kBlock) {
    *scale = load_half(head + r * 2);
  } else if constexpr (F::kScales == Scales::kSuper) {
    *scale = load_half(head + r * 2) * static_cast<float>(static_cast<int8_t>(tail[r]));
  } else if constexpr (F::kScales == Scales::kPower) {
    *scale = power_scale(tail[r]);
  } else {
    *scale = load_half(tail + r * 2);
    if (F::kMin) *min = load_half(tail + 32 + r * 2);
  }
}

}  // namespace octavo
