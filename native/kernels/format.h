// The bytes of each quantized format in the panel stream.
//
// A group of the stream is 32 columns of 16 rows:
//   kLines lines of 64 bytes: elements [k/4][16 rows][4]. With bytes, line i is column quad i; with
//     nibbles, line i holds column quad 2i in its low and 2i+1 in its high nibbles; with 2 bits,
//     bits 2j and 2j+1 of line i are column quad 4i+j.
//   kPlanes lines of 64 bytes with the bits above the nibble (or above 2 bits): with one plane, bit
//     j of byte b belongs to byte b of column quad j; with two (6 bits), bits 2j and 2j+1 of byte b
//     of plane h belong to byte b of column quad 4h+j.
//   then the scales of the 16 rows, in the file's own precision, as Scales tells.
// Formats with blocks put the scales of the block in front of its groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// What an element q (less its zero point) means, and which bytes say so.
enum class Scales {
  kPlain,     // w = d * q.                    tail: float16 d[16]
  kMin,       // w = d * q + m.                tail: float16 d[16], m[16]
  kPower,     // w = 2^(e - 128) * q.          tail: u8 e[16]
  kBlock,     // w = d * q.                    head: float16 d[16]
  kSuper,     // w = (d * sc) * q.             head: float16 d[16]; tail: int8 sc[16]
  kSuperMin,  // w = (d * sc) * q - dmin * m.  head: float16 d[16], dmin[16]; tail: u8 sc[16], m[16]
  kHalves,    // w = (d * sc) * q.             head: float16 d[16]; tail: int8 sc[2 halves][16]
  kHalvesMin,    // w = (d * sc) * q - dmin * m.  head: float16 d[16], dmin[16];
                 //                               tail: u8 (sc + 16 * m)[2 halves][16]
  kTable,        // w = (d * sc) * table[q].      head: float32 d[16], u8 table[16] (less 128);
                 //                               tail: int8 sc[2 halves][16]
  kFloat,        // w = d * q.                    head: float32 d[16]
  kZero,         // w = d * (q - z).              tail: float16 d[16], u8 z[16]
  kZeroBlock,    // w = d * (q - z).              head: float16 d[16], int16 z[16]
  kHalvesFloat,  // w = (d * sc) * q.           head: float32 d[16]; tail: e4m3 sc[2 halves][16],
                 //                             which are read as 256 times less
};

// Groups that share a head where a format does not say otherwise; the last ones of a row may be
// fewer where it is not 8.
constexpr int groups_of_head(Scales scales) {
  return scales == Scales::kFloat || scales == Scales::kZeroBlock ? 4 : 8;
}

constexpr int head_bytes(Scales scales) {
  switch (scales) {
    case Scales::kBlock:
    case Scales::kSuper:
    case Scales::kHalves:
      return 32;
    case Scales::kSuperMin:
    case Scales::kHalvesMin:
    case Scales::kFloat:
    case Scales::kZeroBlock:
    case Scales::kHalvesFloat:
      return 64;
    case Scales::kTable:
      return 80;
    default:
      return 0;
  }
}

constexpr int tail_bytes(Scales scales) {
  switch (scales) {
    case Scales::kMin:
      return 64;
    case Scales::kPower:
    case Scales::kSuper:
      return 16;
    case Scales::kZero:
      return 48;
    case Scales::kBlock:
    case Scales::kFloat:
    case Scales::kZeroBlock:
      return 0;
    default:
      return 32;
  }
}

// What a 4-bit code means: an integer, or its place in a table of 16.
using CodeTable = int8_t[16];
constexpr CodeTable kNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
// bitsandbytes' values (fractions of the largest weight of a run) as the nearest integers to a
// multiple of them: 112.03 times nf4's, within 0.0039, 120 times fp4's, within 0.0032.
constexpr CodeTable kNormalFloats = {-112, -78, -59, -44, -32, -21, -10, 0,
                                     9,    18,  28,  38,  49,  63,  81,  112};
constexpr CodeTable kFourBitFloats = {0, 1,  80,  120,  40,  60,  20,  30,
                                      0, -1, -80, -120, -40, -60, -20, -30};
constexpr CodeTable kE2m1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// kBits: of a stored element. kZeroBits: a stored element, or the number that its code stands for,
// is q + 2^kZeroBits; -1: q itself. kCodes: elements are codes. kHeadGroups: groups that share a
// head.
template <int kElementBits, int kZero, Scales kKind, bool kCoded = false,
          int kHeadGroups = groups_of_head(kKind)>
struct FormatOf {
  static constexpr int kBits = kElementBits;
  static constexpr int kZeroBits = kZero;
  static constexpr Scales kScales = kKind;
  static constexpr bool kCodes = kCoded;

  static constexpr int kZeroPoint = kZeroBits < 0 ? 0 : 1 << kZeroBits;
  static constexpr bool kBytesOnly = kBits == 8;
  static constexpr bool kWide = kZeroBits == 7;  // what is multiplied takes all of a byte
  static constexpr bool kTable = kScales == Scales::kTable;
  static constexpr int kDigits = 1;  // bytes of the whole number that a code stands for
  static constexpr bool kZeros = kScales == Scales::kZero || kScales == Scales::kZeroBlock;
  static constexpr bool kMin = kScales == Scales::kMin || kScales == Scales::kSuperMin || kZeros;
  static constexpr bool kHalvesMin = kScales == Scales::kHalvesMin;
  // The halves of a group have scales of their own, integers, and the block's comes last.
  static constexpr bool kHalvesFloat = kScales == Scales::kHalvesFloat;  // not integers
  static constexpr bool kHalves =
      kScales == Scales::kHalves || kHalvesMin || kTable || kHalvesFloat;
  static constexpr bool kFloatHead = kTable || kHalvesFloat || kScales == Scales::kFloat;
  static constexpr int kHead = head_bytes(kScales);
  static constexpr int kTail = tail_bytes(kScales);
  static constexpr int kSuper = kHead > 0 ? kHeadGroups : 1;
  static constexpr int kBlock = kSuper * kGroup;                        // columns of a block
  static constexpr int kLineBits = kBits == 8 ? 8 : kBits < 4 ? 2 : 4;  // of an element, in a line
  static constexpr int kLines = kLineBits;                              // of a group
  static constexpr int kPlanes = kBits - kLineBits;                     // high-bit lines of a group
  static constexpr int kElementBytes = (kLines + kPlanes) * 64;
  static constexpr PanelLayout kLayout = kBits == 2   ? PanelLayout::kU2
                                         : kBits == 3 ? PanelLayout::kU3
                                         : kBits == 4 ? PanelLayout::kU4
                                         : kBits == 5 ? PanelLayout::kU5
                                         : kBits == 6 ? PanelLayout::kU6
                                                      : PanelLayout::kU8;
};

template <SourceType S>
struct Format;
template <>
struct Format<SourceType::kQ4_0> : FormatOf<4, 3, Scales::kPlain> {};
template <>
struct Format<SourceType::kQ4_1> : FormatOf<4, -1, Scales::kMin> {};
template <>
struct Format<SourceType::kQ5_0> : FormatOf<5, 4, Scales::kPlain> {};
template <>
struct Format<SourceType::kQ5_1> : FormatOf<5, -1, Scales::kMin> {};
template <>
struct Format<SourceType::kQ8_0> : FormatOf<8, 7, Scales::kPlain> {};
template <>
struct Format<SourceType::kQ2_K> : FormatOf<2, -1, Scales::kHalvesMin> {};
template <>
struct Format<SourceType::kQ3_K> : FormatOf<3, 2, Scales::kHalves> {};
template <>
struct Format<SourceType::kQ4_K> : FormatOf<4, -1, Scales::kSuperMin> {};
template <>
struct Format<SourceType::kQ5_K> : FormatOf<5, -1, Scales::kSuperMin> {};
template <>
struct Format<SourceType::kQ6_K> : FormatOf<6, 5, Scales::kHalves> {};
template <>
struct Format<SourceType::kIQ4_NL> : FormatOf<4, 7, Scales::kPlain, true> {
  static constexpr const CodeTable& kValues = kNonlinear;
};
template <>
struct Format<SourceType::kNF4> : FormatOf<4, 7, Scales::kPlain, true> {
  static constexpr const CodeTable& kValues = kNormalFloats;
};
template <>
struct Format<SourceType::kFP4> : FormatOf<4, 7, Scales::kPlain, true> {
  static constexpr const CodeTable& kValues = kFourBitFloats;
};
template <>
struct Format<SourceType::kIQ4_XS> : FormatOf<4, 7, Scales::kSuper, true> {
  static constexpr const CodeTable& kValues = kNonlinear;
};
template <>
struct Format<SourceType::kTQ2_0> : FormatOf<2, 0, Scales::kBlock> {};
template <>
struct Format<SourceType::kMXFP4> : FormatOf<4, 4, Scales::kPower, true> {
  static constexpr const CodeTable& kValues = kE2m1Doubled;
};
template <>
struct Format<SourceType::kNVFP4> : FormatOf<4, 4, Scales::kHalvesFloat, true> {
  static constexpr const CodeTable& kValues = kE2m1Doubled;
};
template <>
struct Format<SourceType::kQ4_Z> : FormatOf<4, -1, Scales::kZero> {};
template <>
struct Format<SourceType::kQ4_Z128> : FormatOf<4, -1, Scales::kZeroBlock> {};
template <>
struct Format<SourceType::kQ8_Z128> : FormatOf<8, 7, Scales::kZeroBlock> {};
template <>
struct Format<SourceType::kQ8_Z> : FormatOf<8, 7, Scales::kZeroBlock, false, 1> {};
template <>
struct Format<SourceType::kTable> : FormatOf<4, 7, Scales::kTable, true> {};
// "Wide" formats: codes that stand for whole numbers of more than a byte. wide.h has them.
template <>
struct Format<SourceType::kE4M3> : FormatOf<8, -1, Scales::kFloat> {
  static constexpr int kDigits = 3;
};
template <>
struct Format<SourceType::kE4M3_32> : FormatOf<8, -1, Scales::kFloat, false, 1> {
  static constexpr int kDigits = 3;
};
template <SourceType S>
constexpr bool kIsWide = Format<S>::kDigits > 1;

// A format's fixed table as its kernels look it up: with the zero point added.
template <SourceType S>
struct UnsignedTable {
  alignas(16) uint8_t values[16];
  constexpr UnsignedTable() : values{} {
    for (int i = 0; i < 16; ++i) {
      values[i] = static_cast<uint8_t>(Format<S>::kValues[i] + Format<S>::kZeroPoint);
    }
  }
};
template <SourceType S>
inline constexpr UnsignedTable<S> kUnsignedTable{};

// The 16 bytes that the codes of a panel look up: of the format, or (kTable) of the block's head.
template <SourceType S>
inline const uint8_t* code_table(const uint8_t* head) {
  if constexpr (Format<S>::kTable) {
    return head + 64;
  } else {
    return kUnsignedTable<S>.values;
  }
}

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

// Bytes of a panel of so many groups.
template <SourceType S>
constexpr size_t groups_bytes(int64_t groups) {
  const bool whole = groups % Format<S>::kSuper == 0;
  return group_offset<S>(groups) - static_cast<size_t>(whole ? Format<S>::kHead : 0);
}

// Groups of the next block where so many are left.
template <class F>
constexpr int64_t groups_left(int64_t left) {
  return F::kSuper == 1 || left >= F::kSuper ? F::kSuper : left;
}

// Place of element (column k, row r) in a panel of 16-bit floats: [k][16 rows] for float16, and for
// bfloat16 column pairs [k/2][16 rows][2] (the last pair of an odd K is half zero).
constexpr int64_t half_index(PanelLayout layout, int64_t k, int r) {
  return layout == PanelLayout::kF16 ? k * kPanelRows + r : k / 2 * 32 + r * 2 + k % 2;
}

// Panels of e5m2 floats: of each 32 columns float32 scales[16], then the codes [32][16 rows].
constexpr size_t kE5m2GroupBytes = 64 + kGroup * kPanelRows;

// The group of column k in such a panel, and where in it the codes of that column are.
inline const uint8_t* e5m2_group(const uint8_t* panel, int64_t k) {
  return panel + static_cast<size_t>(k / kGroup) * kE5m2GroupBytes;
}
constexpr int64_t e5m2_codes(int64_t k) {
  return 64 + k % kGroup * kPanelRows;
}

// Calls f.template operator()<S>() for the quantized format `source` of panels; false if it is
// none.
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
    case SourceType::kQ2_K:
      f.template operator()<SourceType::kQ2_K>();
      return true;
    case SourceType::kQ3_K:
      f.template operator()<SourceType::kQ3_K>();
      return true;
    case SourceType::kIQ4_NL:
      f.template operator()<SourceType::kIQ4_NL>();
      return true;
    case SourceType::kNF4:
      f.template operator()<SourceType::kNF4>();
      return true;
    case SourceType::kFP4:
      f.template operator()<SourceType::kFP4>();
      return true;
    case SourceType::kIQ4_XS:
      f.template operator()<SourceType::kIQ4_XS>();
      return true;
    case SourceType::kTQ2_0:
      f.template operator()<SourceType::kTQ2_0>();
      return true;
    case SourceType::kMXFP4:
      f.template operator()<SourceType::kMXFP4>();
      return true;
    case SourceType::kTable:
      f.template operator()<SourceType::kTable>();
      return true;
    case SourceType::kE4M3:
      f.template operator()<SourceType::kE4M3>();
      return true;
    case SourceType::kNVFP4:
      f.template operator()<SourceType::kNVFP4>();
      return true;
    case SourceType::kQ4_Z:
      f.template operator()<SourceType::kQ4_Z>();
      return true;
    case SourceType::kQ4_Z128:
      f.template operator()<SourceType::kQ4_Z128>();
      return true;
    case SourceType::kQ8_Z128:
      f.template operator()<SourceType::kQ8_Z128>();
      return true;
    case SourceType::kQ8_Z:
      f.template operator()<SourceType::kQ8_Z>();
      return true;
    case SourceType::kE4M3_32:
      f.template operator()<SourceType::kE4M3_32>();
      return true;
    default:
      return false;
  }
}

}  // namespace octavo
