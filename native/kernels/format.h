// The bytes of each quantized format: its block in the file and its group in the panel stream.
//
// A group of the stream is 32 columns of 16 rows:
//   kLines lines of 64 bytes: elements [k/4][16 rows][4]. With nibbles, line i holds column quad 2i
//     in its low and 2i+1 in its high nibbles; with bytes, line i is column quad i.
//   kPlanes lines of 64 bytes with the bits above the nibble: with one plane (5 bits), bit j of
//   byte
//     b belongs to byte b of column quad j; with two (6 bits), bits 2j and 2j+1 of byte b of plane
//     h belong to byte b of column quad 4h+j.
//   kTail bytes of scales, as told by each format below.
// Formats with blocks of 256 put kHead bytes of float16 in front of every kSuper groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

struct FormatBase {
  static constexpr int kSuper = 1;        // groups that share a head
  static constexpr int kHead = 0;         // bytes
  static constexpr int kLines = 4;        // element lines of a group
  static constexpr int kPlanes = 0;       // high-bit lines of a group
  static constexpr int kZeroBits = -1;    // the stored element is the value + 2^kZeroBits; -1: + 0
  static constexpr bool kMin = false;     // has an added min per group
  static constexpr bool kHalves = false;  // has a scale per 16 columns instead of 32
  static constexpr int kBlock = 32;       // columns of a block in the file
};

template <SourceType S>
struct Format;

// tail: float16 d[16], m[16]. w = d * q + m
template <>
struct Format<SourceType::kQ4_1> : FormatBase {
  static constexpr PanelLayout kLayout = PanelLayout::kU4;
  static constexpr int kTail = 64;
  static constexpr bool kMin = true;
  static constexpr int kBlockBytes = 20;
};

// tail: float16 d[16]. w = d * (q - 16)
template <>
struct Format<SourceType::kQ5_0> : FormatBase {
  static constexpr PanelLayout kLayout = PanelLayout::kU5;
  static constexpr int kPlanes = 1;
  static constexpr int kTail = 32;
  static constexpr int kZeroBits = 4;
  static constexpr int kBlockBytes = 22;
};

// tail: float16 d[16]. w = d * (q - 128)
template <>
struct Format<SourceType::kQ8_0> : FormatBase {
  static constexpr PanelLayout kLayout = PanelLayout::kU8;
  static constexpr int kLines = 8;
  static constexpr int kTail = 32;
  static constexpr int kZeroBits = 7;
  static constexpr int kBlockBytes = 34;
};

// head: float16 d[16], dmin[16]; tail: uint8 sc[16], m[16]. w = (d * sc) * q - dmin * m
template <>
struct Format<SourceType::kQ4_K> : FormatBase {
  static constexpr PanelLayout kLayout = PanelLayout::kU4;
  static constexpr int kSuper = 8;
  static constexpr int kHead = 64;
  static constexpr int kTail = 32;
  static constexpr bool kMin = true;
  static constexpr int kBlock = 256;
  static constexpr int kBlockBytes = 144;
};

// head: float16 d[16]; tail: int8 sc[2 halves][16]. w = (d * sc) * (q - 32)
template <>
struct Format<SourceType::kQ6_K> : FormatBase {
  static constexpr PanelLayout kLayout = PanelLayout::kU6;
  static constexpr int kSuper = 8;
  static constexpr int kHead = 32;
  static constexpr int kPlanes = 2;
  static constexpr int kTail = 32;
  static constexpr int kZeroBits = 5;
  static constexpr bool kHalves = true;
  static constexpr int kBlock = 256;
  static constexpr int kBlockBytes = 210;
};

template <SourceType S>
constexpr size_t kGroupBytes = (Format<S>::kLines + Format<S>::kPlanes) * 64 + Format<S>::kTail;

template <SourceType S>
constexpr size_t kSuperBytes = Format<S>::kHead + Format<S>::kSuper * kGroupBytes<S>;

// Byte of group `group` in a panel.
template <SourceType S>
constexpr size_t group_offset(int64_t group) {
  constexpr int64_t n = Format<S>::kSuper;
  return static_cast<size_t>(group / n) * kSuperBytes<S> + Format<S>::kHead +
         static_cast<size_t>(group % n) * kGroupBytes<S>;
}

// Place of element (column k, row r) in a panel of 16-bit floats: [k][16 rows] for float16, and for
// bfloat16 column pairs [k/2][16 rows][2] (the last pair of an odd K is half zero).
constexpr int64_t half_index(PanelLayout layout, int64_t k, int r) {
  return layout == PanelLayout::kF16 ? k * kPanelRows + r : k / 2 * 32 + r * 2 + k % 2;
}

// Calls f.template operator()<S>() for the quantized format `source`; false if it is none.
template <typename F>
bool with_format(SourceType source, F&& f) {
  switch (source) {
    case SourceType::kQ4_1:
      f.template operator()<SourceType::kQ4_1>();
      return true;
    case SourceType::kQ5_0:
      f.template operator()<SourceType::kQ5_0>();
      return true;
    case SourceType::kQ8_0:
      f.template operator()<SourceType::kQ8_0>();
      return true;
    case SourceType::kQ4_K:
      f.template operator()<SourceType::kQ4_K>();
      return true;
    case SourceType::kQ6_K:
      f.template operator()<SourceType::kQ6_K>();
      return true;
    default:
      return false;
  }
}

}  // namespace octavo
