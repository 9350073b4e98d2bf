// The bytes of each quantized format: its block in the file and its group in the panel stream.
//
// A group of the stream is 32 columns of 16 rows:
//   kLines lines of 64 bytes: elements [k/4][16 rows][4]. With nibbles, line i holds column quad 2i
//     in its low and 2i+1 in its high nibbles; with bytes, line i is column quad i.
//   kPlanes lines of 64 bytes with the bits above the nibble: with one plane (5 bits), bit j of
//   byte
//     b belongs to byte b of column quad j; with two (6 bits), bits 2j and 2j+1 of byte b of plane
//     h belong to byte b of column quad 4h+j.
//   then the scales of the 16 rows, in the file's own precision, as Scales tells.
// Formats with blocks of 256 put float16 scales of the block in front of every 8 groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// What an element q (less its zero point) means, and which bytes say so.
enum class Scales {
  kPlain,     // w = d * q.                    tail: float16 d[16]
  kMin,       // w = d * q + m.                tail: float16 d[16], m[16]
  kSuperMin,  // w = (d * sc) * q - dmin * m.  head: float16 d[16], dmin[16]; tail: u8 sc[16], m[16]
  kHalves,    // w = (d * sc) * q.             head: float16 d[16]; tail: int8 sc[2 halves][16]
};

// kBits: of a stored element. kZeroBits: a stored element is q + 2^kZeroBits; -1: q itself.
// kBlockBytes: of a block in the file, of 32 columns or (with heads) of 256.
template <int kElementBits, int kZero, Scales kKind, int kBytes>
struct FormatOf {
  static constexpr int kBits = kElementBits;
  static constexpr int kZeroBits = kZero;
  static constexpr Scales kScales = kKind;
  static constexpr int kBlockBytes = kBytes;

  static constexpr int kZeroPoint = kZeroBits < 0 ? 0 : 1 << kZeroBits;
  static constexpr bool kBytesOnly = kBits == 8;
  static constexpr bool kMin = kScales == Scales::kMin || kScales == Scales::kSuperMin;
  static constexpr bool kHalves = kScales == Scales::kHalves;
  static constexpr bool kSuperBlock = kScales == Scales::kSuperMin || kHalves;
  static constexpr int kSuper = kSuperBlock ? 8 : 1;          // groups that share a head
  static constexpr int kBlock = kSuper * kGroup;              // columns of a block
  static constexpr int kLines = kBytesOnly ? 8 : 4;           // element lines of a group
  static constexpr int kPlanes = kBytesOnly ? 0 : kBits - 4;  // high-bit lines of a group
  static constexpr int kElementBytes = (kLines + kPlanes) * 64;
  static constexpr int kHead = kScales == Scales::kSuperMin ? 64 : kHalves ? 32 : 0;  // bytes
  static constexpr int kTail = kScales == Scales::kMin ? 64 : 32;                     // bytes
  static constexpr PanelLayout kLayout = kBits == 4   ? PanelLayout::kU4
                                         : kBits == 5 ? PanelLayout::kU5
                                         : kBits == 6 ? PanelLayout::kU6
                                                      : PanelLayout::kU8;
};

template <SourceType S>
struct Format;
template <>
struct Format<SourceType::kQ4_0> : FormatOf<4, 3, Scales::kPlain, 18> {};
template <>
struct Format<SourceType::kQ4_1> : FormatOf<4, -1, Scales::kMin, 20> {};
template <>
struct Format<SourceType::kQ5_0> : FormatOf<5, 4, Scales::kPlain, 22> {};
template <>
struct Format<SourceType::kQ5_1> : FormatOf<5, -1, Scales::kMin, 24> {};
template <>
struct Format<SourceType::kQ8_0> : FormatOf<8, 7, Scales::kPlain, 34> {};
template <>
struct Format<SourceType::kQ4_K> : FormatOf<4, -1, Scales::kSuperMin, 144> {};
template <>
struct Format<SourceType::kQ5_K> : FormatOf<5, -1, Scales::kSuperMin, 176> {};
template <>
struct Format<SourceType::kQ6_K> : FormatOf<6, 5, Scales::kHalves, 210> {};

template <SourceType S>
constexpr size_t kGroupBytes = Format<S>::kElementBytes + Format<S>::kTail;

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
    case SourceType::kQ4_0:
      f.template operator()<SourceType::kQ4_0>();
      return true;
    case SourceType::kQ4_1:
      f.template operator()<SourceType::kQ4_1>();
      return true;
    case SourceType::kQ5_0:
      f.template operator()<SourceType::kQ5_0>();
      return true;
    case SourceType::kQ5_1:
      f.template operator()<SourceType::kQ5_1>();
      return true;
    case SourceType::kQ8_0:
      f.template operator()<SourceType::kQ8_0>();
      return true;
    case SourceType::kQ4_K:
      f.template operator()<SourceType::kQ4_K>();
      return true;
    case SourceType::kQ5_K:
      f.template operator()<SourceType::kQ5_K>();
      return true;
    case SourceType::kQ6_K:
      f.template operator()<SourceType::kQ6_K>();
      return true;
    default:
      return false;
  }
}

}  // namespace octavo
