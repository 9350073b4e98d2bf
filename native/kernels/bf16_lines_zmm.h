// Groups of a panel as tiles of bf16, and the powers of two behind a panel that they are scaled by.
#pragma once

#include "kernels/bf16_rows.h"
#include "kernels/bf16_scales_zmm.h"

namespace octavo {
namespace {

constexpr size_t kTrailer = 64;                        // float[16]: powers of two
constexpr size_t kUnpacked = 2 * kGroup * kPanelRows;  // bytes of an unpacked group
constexpr float kElementUnit = 0x1p-112f;              // what the moved bits of 1 are
constexpr int kMostExponent = 14;                      // elements are below 2^14 in float16

#define OCTAVO_LAMBDA __attribute__((always_inline))

// each.operator()<0>() to <kCount - 1>().
template <int kCount, int i = 0, class Each>
OCTAVO_INLINE void each_of(Each each) {
  if constexpr (i < kCount) {
    each.template operator()<i>();
    each_of<kCount, i + 1>(each);
  }
}

// Pairs of numbers to a line of bf16.
template <SourceType S>
OCTAVO_INLINE void store_line(__m512h number, const Factors& factors, uint8_t* line) {
  __m512h x;
  if constexpr (kHasMin<S> || (!kLooksUp<S> && Format<S>::kZeroPoint > 0)) {
    x = _mm512_fmadd_ph(number, factors.scale, factors.min);
  } else {
    x = _mm512_mul_ph(number, factors.scale);
  }
  // (bits + 4) >> 3, and of the copies of the sign the first.
  const __m512i moved = _mm512_mulhrs_epi16(_mm512_castph_si512(x), _mm512_set1_epi16(1 << 12));
  _mm512_store_si512(line, _mm512_and_si512(moved, _mm512_set1_epi16(static_cast<short>(0x8fff))));
}

// The bits of every byte from bit `n` on, of those behind it too (n < 0: and of those before it).
// What vpsrlw does as well, but on the pipe that multiplications leave free: where tile products
// run, those of 512 bits have one.
template <int n>
OCTAVO_INLINE __m512i from_bit(__m512i x) {
  if constexpr (n == 0) return x;
  constexpr auto kOffsets = [] {
    uint64_t all = 0;
    for (int i = 0; i < 8; ++i) all |= static_cast<uint64_t>((8 * i + n) & 63) << (8 * i);
    return static_cast<int64_t>(all);
  }();
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kOffsets), x);
}

// The elements of column quad j of a group, as bytes.
template <SourceType S, int j>
OCTAVO_INLINE __m512i quad_of(const uint8_t* group) {
  using F = Format<S>;
  if constexpr (F::kBytesOnly) {
    return load(group + j * 64);
  } else {
    constexpr int kBits = F::kLineBits, kLineQuads = 8 / kBits;
    const __m512i low = _mm512_set1_epi8((1 << kBits) - 1);
    const __m512i line = load(group + j / kLineQuads * 64);
    const __m512i element = _mm512_and_si512(from_bit<j % kLineQuads * kBits>(line), low);
    if constexpr (F::kPlanes == 0) {
      return element;
    } else {
      constexpr int kQuads = 8 / F::kPlanes;
      const __m512i plane = load(group + F::kLines * 64 + j / kQuads * 64);
      const __m512i high = _mm512_set1_epi8(((1 << F::kPlanes) - 1) << kBits);
      const __m512i placed = from_bit<j % kQuads * F::kPlanes - kBits>(plane);
      return _mm512_or_si512(element, _mm512_and_si512(placed, high));
    }
  }
}

// Byte pairs of a column quad: those of even and of odd columns, as numbers.
template <SourceType S>
OCTAVO_INLINE __m512h numbers_of(__m512i words, __m512i table) {
  if constexpr (kLooksUp<S>) {
    return _mm512_castsi512_ph(_mm512_permutexvar_epi16(words, table));
  } else if constexpr (kIsWide<S>) {
    const __m512i code = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
    const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi16(0x80));
    return _mm512_castsi512_ph(
        _mm512_or_si512(_mm512_slli_epi16(code, 7), _mm512_slli_epi16(sign, 8)));
  } else {
    return _mm512_cvtepu16_ph(_mm512_and_si512(words, _mm512_set1_epi16(0xff)));
  }
}

// Unpacks a group: line 2j holds columns 4j and 4j+2 of all rows, line 2j+1 columns 4j+1 and 4j+3.
template <SourceType S>
OCTAVO_INLINE void expand_group(const Shared<S>& shared, const uint8_t* head, const uint8_t* group,
                                uint8_t* out) {
  using F = Format<S>;
  const __m512i table = shared.table;
  constexpr int kParts = F::kHalves ? 2 : 1;
  each_of<kParts>([&]<int part>() OCTAVO_LAMBDA {
    const Factors factors = shared.factors(head, group, part);
    if constexpr (F::kBits == 4) {
      constexpr int kLines = 4 / kParts;
      each_of<kLines>([&]<int i>() OCTAVO_LAMBDA {
        constexpr int at = part * kLines + i;
        const __m512i line = load(group + at * 64);
        uint8_t* to = out + at * 256;
        store_line<S>(numbers_of<S>(line, table), factors, to);
        store_line<S>(numbers_of<S>(from_bit<8>(line), table), factors, to + 64);
        store_line<S>(numbers_of<S>(from_bit<4>(line), table), factors, to + 128);
        store_line<S>(numbers_of<S>(from_bit<12>(line), table), factors, to + 192);
      });
    } else {
      constexpr int kQuads = 8 / kParts;
      each_of<kQuads>([&]<int i>() OCTAVO_LAMBDA {
        constexpr int at = part * kQuads + i;
        const __m512i quad = quad_of<S, at>(group);
        store_line<S>(numbers_of<S>(quad, table), factors, out + at * 128);
        store_line<S>(numbers_of<S>(from_bit<8>(quad), table), factors, out + at * 128 + 64);
      });
    }
  });
}

// Walks a panel group by group.
template <SourceType S>
struct Walk {
  const uint8_t* head = nullptr;
  const uint8_t* group = nullptr;
  int64_t left = 0;  // groups under this head
  Shared<S> shared;

  // From group `from` on, a multiple of 8.
  OCTAVO_INLINE void begin(const uint8_t* panel, size_t panel_bytes, int64_t from) {
    shared.panel(panel + panel_bytes - kTrailer);
    group = panel + static_cast<size_t>(from / Format<S>::kSuper) * kSuperBytes<S>;
  }
  OCTAVO_INLINE void next(uint8_t* out) {
    if constexpr (Format<S>::kHead > 0) {
      if (left == 0) {
        head = group;
        shared.head(head);
        group += Format<S>::kHead;
        left = Format<S>::kSuper;
      }
      --left;
    }
    expand_group<S>(shared, head, group, out);
    group += kGroupBytes<S>;
  }
};

// Groups [begin, end) of a panel, begin a multiple of 8.
template <SourceType S>
void expand_groups(const uint8_t* panel, size_t panel_bytes, int64_t begin, int64_t end,
                   uint8_t* out) {
  Walk<S> walk;
  walk.begin(panel, panel_bytes, begin);
  for (int64_t g = begin; g < end; ++g, out += kUnpacked) walk.next(out);
}

// Writes the powers of two of the panel's rows.
template <SourceType S>
void finish(const PanelMatrix& m, uint8_t* panel) {
  __m512 most = _mm512_setzero_ps();
  const int64_t groups = m.k / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* head = panel + static_cast<size_t>(g / Format<S>::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    for (int half = 0; half < (Format<S>::kHalves ? 2 : 1); ++half) {
      const __m512 scale = _mm512_abs_ps(exact_scale<S>(head, group, half));
      __m512 size = _mm512_mul_ps(scale, _mm512_set1_ps(largest<S>()));
      if constexpr (kHasMin<S>) {
        size = _mm512_add_ps(size, _mm512_abs_ps(exact_min<S>(head, group, half)));
      }
      most = _mm512_max_ps(most, size);
    }
  }
  const __m512 exponent = _mm512_getexp_ps(most);  // rounded down; -infinity of 0
  const __m512 up = _mm512_sub_ps(_mm512_set1_ps(kMostExponent - 1), exponent);
  // Where scales are float16 as well, powers that it has.
  constexpr bool kFloats = Format<S>::kFloatHead || Format<S>::kScales == Scales::kPower;
  const __m512 least = _mm512_set1_ps(kFloats ? -120.0f : -14.0f);
  const __m512 greatest = _mm512_set1_ps(kFloats ? 126.0f : 15.0f);
  const __m512 bounded = _mm512_min_ps(_mm512_max_ps(up, least), greatest);
  _mm512_storeu_ps(panel + m.panel_bytes - kTrailer,
                   _mm512_scalef_ps(_mm512_set1_ps(1.0f), bounded));
}

// What sums of a panel are multiplied by, after kSumUnit; both at once may be past the largest
// float. A panel that was never written has zeros.
constexpr float kSumUnit = 1.0f / kElementUnit / kBf16Unit;
OCTAVO_INLINE __m512 unit_of(const uint8_t* panel, size_t panel_bytes) {
  const __m512 power = load_floats(panel + panel_bytes - kTrailer);
  const __mmask16 usable = _mm512_cmp_ps_mask(power, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  return _mm512_maskz_div_ps(usable, _mm512_set1_ps(1.0f), power);
}

}  // namespace
}  // namespace octavo
