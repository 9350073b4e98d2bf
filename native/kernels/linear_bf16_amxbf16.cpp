// Quantized products with bf16 tiles, of any number of rows.
//
// Weights stay in the panels' formats. A group of a panel is unpacked to a tile of 16 pairs of
// columns by 16 weight rows, scaled, and multiplied by up to 16 rows of activations a tile product;
// sums stay in tiles over all of K, so that nothing has to be done for a group but the product
// itself. An element is one float16 multiply-add, scale * q + min, rounded to bf16: its float16
// bits moved right by three are the bits of a bf16 2^112 times smaller. Scales are those of the
// file times a power of two for each weight row, kept behind a panel's groups, which puts the row's
// largest element just below the largest float16; a result is divided by both powers.
//
// The order of float operations per output element: for each group in K order, the products of
// columns 4j (+1) over j in order, those of columns 4j+2 (+3) likewise, their sum to the sum so far
// (tdpbf16ps). It is the same for any number of rows.
#include "kernels/kernel_table.h"

#if defined(__AMX_BF16__) && defined(__AVX512FP16__)

#include <algorithm>
#include <array>

#include "kernels/amx_tiles.h"
#include "kernels/bf16_rows.h"
#include "kernels/kernels_amx.h"
#include "kernels/kernels_avx512.h"
#include "kernels/panel_views_zmm.h"

namespace octavo {
namespace {

constexpr size_t kTrailer = 64;                        // float[16]: powers of two
constexpr size_t kUnpacked = 2 * kGroup * kPanelRows;  // bytes of an unpacked group
constexpr float kElementUnit = 0x1p-112f;              // what the moved bits of 1 are
constexpr int kMostExponent = 14;                      // elements are below 2^14 in float16
constexpr int kSums = kAmxRows * kPanelRows;

#define OCTAVO_LAMBDA __attribute__((always_inline))

// each.operator()<0>() to <kCount - 1>().
template <int kCount, int i = 0, class Each>
OCTAVO_INLINE void each_of(Each each) {
  if constexpr (i < kCount) {
    each.template operator()<i>();
    each_of<kCount, i + 1>(each);
  }
}

// The formats' numbers.

// Largest magnitude that an element without its min stands for.
template <SourceType S>
constexpr float largest() {
  using F = Format<S>;
  if constexpr (kIsWide<S>) return 480.0f / 256;  // as float16 bits hold an e4m3
  if constexpr (F::kCodes) return 128.0f;
  return static_cast<float>(std::max((1 << F::kBits) - 1 - F::kZeroPoint, F::kZeroPoint));
}

template <SourceType S>
constexpr bool kHasMin = Format<S>::kMin || Format<S>::kHalvesMin;
// Elements, less their zero point, are looked up by five bits.
template <SourceType S>
constexpr bool kLooksUp = Format<S>::kBits <= 5;
// From units of 1/512 to those of 256, which the bits of a wide element have in float16.
constexpr float kWideUnit = 0x1p17f;

// In float32, for the powers: the scale of half `half` of a group of each weight row, and the min.
template <SourceType S>
OCTAVO_INLINE __m512 exact_scale(const uint8_t* head, const uint8_t* group, int half) {
  const __m512 scale = Stored<S>::scale(head, group);
  if constexpr (kIsWide<S>) return _mm512_mul_ps(scale, _mm512_set1_ps(kWideUnit));
  if constexpr (!Format<S>::kHalves) return scale;
  if constexpr (Format<S>::kHalves) return _mm512_mul_ps(scale, Stored<S>::half_scale(group, half));
}
template <SourceType S>
OCTAVO_INLINE __m512 exact_min(const uint8_t* head, const uint8_t* group, int half) {
  if constexpr (Format<S>::kHalvesMin) {
    return _mm512_mul_ps(Stored<S>::min_scale(head), Stored<S>::half_min(group, half));
  } else {
    return Stored<S>::min(head, group);
  }
}

// Numbers of the 16 weight rows as float16, each twice: of the two columns of a pair.
OCTAVO_INLINE __m512h twice(__m256i numbers) {
  const __m512i each = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8,
                                        7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_castsi512_ph(_mm512_permutexvar_epi16(each, _mm512_castsi256_si512(numbers)));
}
OCTAVO_INLINE __m512h twice_halves(const uint8_t* at) {
  return twice(load_256(at));
}
OCTAVO_INLINE __m512h twice_rounded(__m512 x) {
  return twice(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Of bytes, as words that hold each in its low or in its high half.
template <bool kHigh>
OCTAVO_INLINE __m512i twice_bytes(const uint8_t* at) {
  constexpr __mmask64 kHalf = kHigh ? 0xaaaaaaaaaaaaaaaa : 0x5555555555555555;
  const __m512i each =
      _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                       0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                       0x03030303, 0x02020202, 0x01010101, 0);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm512_maskz_permutexvar_epi8(kHalf, each, _mm512_castsi128_si512(bytes));
}
OCTAVO_INLINE __m512h twice_unsigned(const uint8_t* at) {
  return _mm512_cvtepu16_ph(twice_bytes<false>(at));
}
OCTAVO_INLINE __m512h twice_signed(const uint8_t* at) {
  return _mm512_cvtepi16_ph(_mm512_srai_epi16(twice_bytes<true>(at), 8));
}

OCTAVO_INLINE __m512h times(__m512h a, __m512h b) {
  return _mm512_mul_ph(a, b);
}
OCTAVO_INLINE __m512h minus(__m512h a) {
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
  return _mm512_castsi512_ph(_mm512_xor_si512(_mm512_castph_si512(a), sign));
}

// An element is scale * number + min.
struct Factors {
  __m512h scale;
  __m512h min;
};

// Numbers that the low five bits of an element stand for, in float16.
template <SourceType S>
OCTAVO_INLINE __m512i number_table(const uint8_t* head) {
  using F = Format<S>;
  __m512i numbers;
  if constexpr (F::kCodes) {
    const auto* codes = reinterpret_cast<const __m128i*>(code_table<S>(head));
    numbers = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(_mm_loadu_si128(codes)));
  } else {
    numbers = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15,
                               14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    numbers = _mm512_and_si512(numbers, _mm512_set1_epi16((1 << F::kBits) - 1));
  }
  numbers = _mm512_sub_epi16(numbers, _mm512_set1_epi16(F::kZeroPoint));
  return _mm512_castph_si512(_mm512_cvtepi16_ph(numbers));
}

// What the groups of a block share.
template <SourceType S>
struct Shared {
  using F = Format<S>;
  __m512 power;    // of the rows
  __m512h powers;  // each twice
  __m512i table{};
  Factors block;

  OCTAVO_INLINE void panel(const uint8_t* trailer) {
    power = load_floats(trailer);
    powers = twice_rounded(power);
    if constexpr (kLooksUp<S> && !F::kTable) table = number_table<S>(nullptr);
  }

  OCTAVO_INLINE void head(const uint8_t* at) {
    if constexpr (F::kTable) table = number_table<S>(at);
    if constexpr (F::kFloatHead) {
      const __m512 unit = _mm512_set1_ps(kIsWide<S> ? kWideUnit : 1.0f);
      if constexpr (!F::kHalvesFloat) {
        const __m512 scale = _mm512_mul_ps(load_floats(at), unit);
        block.scale = twice_rounded(_mm512_mul_ps(scale, power));
      }
    } else if constexpr (F::kHead > 0) {
      block.scale = times(twice_halves(at), powers);
    }
    if constexpr (F::kScales == Scales::kSuperMin || F::kHalvesMin) {
      block.min = minus(times(twice_halves(at + 32), powers));
    } else if constexpr (F::kScales == Scales::kZeroBlock) {
      const __m512h zero = _mm512_cvtepi16_ph(_mm512_castph_si512(twice(load_256(at + 32))));
      block.min = minus(times(block.scale, zero));
    }
  }

  // Of half `half` of a group; `head` and `group` as Stored has them.
  OCTAVO_INLINE Factors factors(const uint8_t* head, const uint8_t* group, int half) const {
    const uint8_t* tail = group + F::kElementBytes;
    Factors f = block;
    if constexpr (F::kScales == Scales::kPlain || F::kScales == Scales::kMin) {
      f.scale = times(twice_halves(tail), powers);
      if constexpr (F::kMin) f.min = times(twice_halves(tail + 32), powers);
    } else if constexpr (F::kScales == Scales::kZero) {
      f.scale = times(twice_halves(tail), powers);
      f.min = minus(times(f.scale, twice_unsigned(tail + 32)));
    } else if constexpr (F::kScales == Scales::kSuperMin) {
      f.scale = times(block.scale, twice_unsigned(tail));
      f.min = times(block.min, twice_unsigned(tail + 16));
    } else if constexpr (F::kScales == Scales::kSuper) {
      f.scale = times(block.scale, twice_signed(tail));
    } else if constexpr (F::kHalvesMin) {
      const __m512i both = twice_bytes<false>(tail + half * 16);
      const __m512i low = _mm512_and_si512(both, _mm512_set1_epi16(15));
      f.scale = times(block.scale, _mm512_cvtepu16_ph(low));
      f.min = times(block.min, _mm512_cvtepu16_ph(_mm512_srli_epi16(both, 4)));
    } else if constexpr (F::kHalves && !F::kHalvesFloat) {
      f.scale = times(block.scale, twice_signed(tail + half * 16));
    } else if constexpr (F::kHalvesFloat || F::kScales == Scales::kPower) {
      f.scale = twice_rounded(_mm512_mul_ps(exact_scale<S>(head, group, half), power));
    }
    if constexpr (!kLooksUp<S> && F::kZeroPoint > 0) {
      const __m512h zero = _mm512_set1_ph(static_cast<_Float16>(-F::kZeroPoint));
      if constexpr (kHasMin<S>) {
        f.min = _mm512_fmadd_ph(f.scale, zero, f.min);
      } else {
        f.min = times(f.scale, zero);
      }
    }
    return f;
  }
};

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

using Expand = void (*)(const uint8_t* panel, size_t panel_bytes, int64_t begin, int64_t end,
                        uint8_t* out);

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

void finish_panel(const PanelMatrix& m, uint8_t* panel) {
  with_format(m.source, [&]<SourceType S>() { finish<S>(m, panel); });
}

// What sums of a panel are multiplied by, after kSumUnit; both at once may be past the largest
// float. A panel that was never written has zeros.
constexpr float kSumUnit = 1.0f / kElementUnit / kBf16Unit;
OCTAVO_INLINE __m512 unit_of(const uint8_t* panel, size_t panel_bytes) {
  const __m512 power = load_floats(panel + panel_bytes - kTrailer);
  const __mmask16 usable = _mm512_cmp_ps_mask(power, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  return _mm512_maskz_div_ps(usable, _mm512_set1_ps(1.0f), power);
}

// Tile products. Tiles 0 to 3 are sums; 4 and 5 hold activations, 6 and 7 weights.

constexpr std::array<TileShapes, kAmxRows> product_shapes() {
  std::array<TileShapes, kAmxRows> all;
  for (int rows = 1; rows <= kAmxRows; ++rows) {
    TileShapes& shapes = all[static_cast<size_t>(rows - 1)];
    for (int i = 0; i < 6; ++i) shapes.shape(i, rows, kAmxBytes);
    for (int i = 6; i < 8; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  }
  return all;
}

void open_products(int rows) {
  static constexpr std::array<TileShapes, kAmxRows> kShapes = product_shapes();
  open_tiles(kShapes[static_cast<size_t>(rows - 1)]);
}

template <int i>
OCTAVO_INLINE void zero_sums() {
  if constexpr (i == 0) OCTAVO_TILE_ZERO(0);
  if constexpr (i == 1) OCTAVO_TILE_ZERO(1);
  if constexpr (i == 2) OCTAVO_TILE_ZERO(2);
  if constexpr (i == 3) OCTAVO_TILE_ZERO(3);
}

template <int i>
OCTAVO_INLINE void load_sums(const float* at) {
  if constexpr (i == 0) OCTAVO_TILE_LOAD(0, at, 64);
  if constexpr (i == 1) OCTAVO_TILE_LOAD(1, at, 64);
  if constexpr (i == 2) OCTAVO_TILE_LOAD(2, at, 64);
  if constexpr (i == 3) OCTAVO_TILE_LOAD(3, at, 64);
}

template <int i>
OCTAVO_INLINE void store_sums(float* at) {
  if constexpr (i == 0) OCTAVO_TILE_STORE(0, at, 64);
  if constexpr (i == 1) OCTAVO_TILE_STORE(1, at, 64);
  if constexpr (i == 2) OCTAVO_TILE_STORE(2, at, 64);
  if constexpr (i == 3) OCTAVO_TILE_STORE(3, at, 64);
}

template <int i>
OCTAVO_INLINE void load_rows(const uint8_t* rows) {
  if constexpr (i == 0) OCTAVO_TILE_LOAD(4, rows, 64);
  if constexpr (i == 1) OCTAVO_TILE_LOAD(5, rows, 64);
}

template <int i>
OCTAVO_INLINE void load_weights(const uint8_t* lines) {
  if constexpr (i % 2 == 0) OCTAVO_TILE_LOAD(6, lines, 64);
  if constexpr (i % 2 == 1) OCTAVO_TILE_LOAD(7, lines, 64);
}

// Sums of tile `r` of P panels, of R tiles of rows: place r * P + p.
template <int R, int P, int r, int p>
OCTAVO_INLINE void multiply_add() {
  constexpr int at = r * P + p;
  if constexpr (at == 0) OCTAVO_TILE_ADD_BF16(0, 4, 6);
  if constexpr (at == 1 && r == 0) OCTAVO_TILE_ADD_BF16(1, 4, 7);
  if constexpr (at == 1 && r == 1) OCTAVO_TILE_ADD_BF16(1, 5, 6);
  if constexpr (at == 2 && r == 0) OCTAVO_TILE_ADD_BF16(2, 4, 6);
  if constexpr (at == 2 && r == 1) OCTAVO_TILE_ADD_BF16(2, 5, 6);
  if constexpr (at == 3 && r == 0) OCTAVO_TILE_ADD_BF16(3, 4, 7);
  if constexpr (at == 3 && r == 1) OCTAVO_TILE_ADD_BF16(3, 5, 7);
}

// One group: rows of R tiles, `tile_stride` apart, by P unpacked panels, `panel_stride` apart.
template <int R, int P>
OCTAVO_INLINE void multiply_group(const uint8_t* rows, size_t tile_stride, const uint8_t* lines,
                                  size_t panel_stride) {
  load_rows<0>(rows);
  load_weights<0>(lines);
  multiply_add<R, P, 0, 0>();
  if constexpr (R > 1) {
    load_rows<1>(rows + tile_stride);
    multiply_add<R, P, 1, 0>();
  }
  if constexpr (P > 1) {
    load_weights<1>(lines + panel_stride);
    multiply_add<R, P, 0, 1>();
    if constexpr (R > 1) multiply_add<R, P, 1, 1>();
  }
  if constexpr (P > 2) {
    load_weights<2>(lines + 2 * panel_stride);
    multiply_add<R, P, 0, 2>();
    load_weights<3>(lines + 3 * panel_stride);
    multiply_add<R, P, 0, 3>();
  }
}

// Rows of a tile that are wanted go from sums to results.
OCTAVO_INLINE void write_rows(const ProductArgs& a, int64_t tile, int64_t panel,
                              const float* sums) {
  const uint8_t* at = a.matrix.data + static_cast<size_t>(panel) * a.matrix.panel_bytes;
  const __m512 unit = unit_of(at, a.matrix.panel_bytes);
  const int64_t valid = std::min<int64_t>(kPanelRows, a.matrix.n - panel * kPanelRows);
  const __mmask16 mask = static_cast<__mmask16>((1 << valid) - 1);
  const int64_t first = tile * a.x.tile;
  const int64_t begin = std::max(first, a.row_begin);
  const int64_t end = std::min(first + a.x.tile, a.row_end);
  float* out = a.out + panel * kPanelRows;
  for (int64_t r = begin; r < end; ++r) {
    const __m512 stored = _mm512_loadu_ps(sums + (r - first) * kPanelRows);
    const __m512 sum = _mm512_mul_ps(stored, _mm512_set1_ps(kSumUnit));
    _mm512_mask_storeu_ps(out + r * a.ldo, mask, _mm512_mul_ps(sum, unit));
  }
}

// Few rows, R tiles: P panels at a time, as so many streams of memory, unpacked group by group. A
// group is multiplied while the next one is unpacked.
template <SourceType S>
struct Streams {
  static constexpr size_t kAhead = 2560;

  // Asks memory for what lies kAhead behind `at` in a panel, or in the one that comes after it.
  static OCTAVO_INLINE void ask(const uint8_t* panel, size_t panel_bytes, size_t at,
                                const uint8_t* next) {
    constexpr size_t kBytes = kGroupBytes<S> + (Format<S>::kHead + 7) / 8;
    const size_t from = at + kAhead;
    const uint8_t* ahead = from < panel_bytes ? panel + from : next + (from - panel_bytes);
    for (size_t b = 0; b < kBytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b), _MM_HINT_T0);
    }
  }

  template <int R, int P>
  static void run(const ProductArgs& a, int64_t tile, int64_t panel) {
    const size_t panel_bytes = a.matrix.panel_bytes;
    const uint8_t* first = a.matrix.data + static_cast<size_t>(panel) * panel_bytes;
    const bool ends = panel + P >= a.panel_end && a.next.data != nullptr;
    const uint8_t* next = ends ? a.next.data : first + P * panel_bytes;
    const size_t next_bytes = ends ? a.next.panel_bytes : panel_bytes;
    alignas(64) uint8_t lines[2][P][kUnpacked];
    Walk<S> walks[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) walks[p].begin(first + p * panel_bytes, panel_bytes, 0);
    each_of<R * P>([]<int i>() { zero_sums<i>(); });
    const uint8_t* rows = a.x.record(tile, 0);
    const size_t group_stride = a.x.group_stride(), tile_stride = a.x.tile_stride();
    for (int64_t g = 0; g <= a.x.groups; ++g) {
      if (g < a.x.groups) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const uint8_t* from = first + p * panel_bytes;
          const auto at = static_cast<size_t>(walks[p].group - from);
          ask(from, panel_bytes, at, next + p * next_bytes);
          walks[p].next(lines[g % 2][p]);
        }
      }
      if (g == 0) continue;
      multiply_group<R, P>(rows, tile_stride, lines[1 - g % 2][0], kUnpacked);
      rows += group_stride;
    }
    each_of<R * P>([&]<int i>() {
      alignas(64) float sums[kSums];
      store_sums<i>(sums);
      write_rows(a, tile + i / P, panel + i % P, sums);
    });
  }

  static void all(const ProductArgs& a, int64_t tile, int64_t tiles) {
    for (int64_t p = a.panel_begin; p < a.panel_end;) {
      const int64_t left = a.panel_end - p;
      if (tiles == 1) {
        if (left >= 4) {
          run<1, 4>(a, tile, p), p += 4;
        } else if (left >= 2) {
          run<1, 2>(a, tile, p), p += 2;
        } else {
          run<1, 1>(a, tile, p), p += 1;
        }
      } else if (left >= 2) {
        run<2, 2>(a, tile, p), p += 2;
      } else {
        run<2, 1>(a, tile, p), p += 1;
      }
    }
  }
};

// Many rows: kBlockGroups groups of kBlockPanels panels are unpacked at a time, into the first
// level of cache, and multiplied by up to kBlockTiles tiles of rows. Sums go through memory between
// one block of columns and the next.
constexpr int64_t kBlockGroups = 8;
constexpr int64_t kBlockPanels = 4;
constexpr int64_t kBlockTiles = 32;

struct BlockMemory {
  alignas(64) uint8_t lines[kBlockPanels][kBlockGroups][kUnpacked];
  alignas(64) float sums[kBlockTiles][kBlockPanels][kSums];
};

// R tiles of rows from `tile` on by P panels from place `p` on.
template <int R, int P>
OCTAVO_INLINE void multiply_block(const QuantizedRows& x, BlockMemory& memory, int64_t tile,
                                  int64_t place, int64_t p, int64_t begin, int64_t end) {
  const auto sums = [&]<int i>() { return memory.sums[place + i / P][p + i % P]; };
  if (begin == 0) {
    each_of<R * P>([]<int i>() { zero_sums<i>(); });
  } else {
    each_of<R * P>([&]<int i>() { load_sums<i>(sums.template operator()<i>()); });
  }
  const uint8_t* rows = x.record(tile, begin);
  const size_t group_stride = x.group_stride(), tile_stride = x.tile_stride();
  for (int64_t g = 0; g < end - begin; ++g, rows += group_stride) {
    multiply_group<R, P>(rows, tile_stride, memory.lines[p][g], sizeof(memory.lines[0]));
  }
  each_of<R * P>([&]<int i>() { store_sums<i>(sums.template operator()<i>()); });
}

OCTAVO_INLINE void ask_for(const uint8_t* at, size_t bytes) {
  for (size_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
  }
}

void multiply_blocks(const ProductArgs& a, BlockMemory& memory, Expand expand, int64_t tile,
                     int64_t tiles, int64_t panel, int64_t panels) {
  const auto at = [&](int64_t p) {
    return a.matrix.data + static_cast<size_t>(panel + p) * a.matrix.panel_bytes;
  };
  const size_t panel_bytes = a.matrix.panel_bytes;
  const auto groups = static_cast<size_t>(a.x.groups);
  for (int64_t begin = 0; begin < a.x.groups; begin += kBlockGroups) {
    const int64_t end = std::min(begin + kBlockGroups, a.x.groups);
    for (int64_t p = 0; p < panels; ++p) {
      expand(at(p), a.matrix.panel_bytes, begin, end, memory.lines[p][0]);
    }
    // What is unpacked next: of these panels, or of those after them.
    const size_t piece = panel_bytes * static_cast<size_t>(kBlockGroups) / groups;
    const bool more = end < a.x.groups;
    for (int64_t t = 0; t < tiles; t += 2) {
      for (int64_t p = 0; p < panels; ++p) {
        const uint8_t* from =
            more ? at(p) + panel_bytes * static_cast<size_t>(end) / groups : at(p + panels);
        ask_for(from + piece * t / tiles, piece * 2 / tiles + 64);
      }
      for (int64_t p = 0; p < panels; p += 2) {
        if (t + 1 < tiles && p + 1 < panels) {
          multiply_block<2, 2>(a.x, memory, tile + t, t, p, begin, end);
        } else if (t + 1 < tiles) {
          multiply_block<2, 1>(a.x, memory, tile + t, t, p, begin, end);
        } else if (p + 1 < panels) {
          multiply_block<1, 2>(a.x, memory, tile + t, t, p, begin, end);
        } else {
          multiply_block<1, 1>(a.x, memory, tile + t, t, p, begin, end);
        }
      }
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t p = 0; p < panels; ++p) {
      write_rows(a, tile + t, panel + p, memory.sums[t][p]);
    }
  }
}

template <SourceType S>
void product_of(const ProductArgs& a) {
  const int64_t first = a.row_begin / a.x.tile;
  const int64_t tiles = (a.row_end - 1) / a.x.tile + 1 - first;
  open_products(a.x.tile);
  if (tiles <= 2) {
    Streams<S>::all(a, first, tiles);
  } else {
    static thread_local BlockMemory memory;
    for (int64_t t = 0; t < tiles; t += kBlockTiles) {
      const int64_t some = std::min(kBlockTiles, tiles - t);
      for (int64_t p = a.panel_begin; p < a.panel_end; p += kBlockPanels) {
        multiply_blocks(a, memory, expand_groups<S>, first + t, some, p,
                        std::min(kBlockPanels, a.panel_end - p));
      }
    }
  }
  close_tiles();
}

void product(const ProductArgs& a) {
  if (a.row_begin >= a.row_end || a.panel_begin >= a.panel_end) return;
  with_format(a.matrix.source, [&]<SourceType S>() { product_of<S>(a); });
}

void round_group(const float* x, uint8_t* out) {
  // Infinities become NaN, as the other sets have them.
  const auto scaled = [](__m512 part) {
    const __m512 unknown = _mm512_mul_ps(part, _mm512_setzero_ps());
    return _mm512_fmadd_ps(part, _mm512_set1_ps(kBf16Unit), unknown);
  };
  const __m512 first = scaled(_mm512_loadu_ps(x));
  const __m512 second = scaled(_mm512_loadu_ps(x + 16));
  const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  // Of every four the middle two swapped: bf16_column.
  const __m512i swap =
      _mm512_broadcast_i32x4(_mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
  _mm512_storeu_si512(out, _mm512_shuffle_epi8(rounded, swap));
}

}  // namespace

const KernelTable& amxbf16_kernels() {
  static const KernelTable table = [] {
    KernelTable t = avx512_kernels();
    t.isa = "amxbf16";
    t.tile_rows = kAmxRows;
    t.product = product;
    t.round_group = round_group;
    t.trailer_bytes = kTrailer;
    t.finish_panel = finish_panel;
    t.int8_loop = int8_loop_amx;
    t.bf16_loop = bf16_loop_amx;
    return t;
  }();
  return table;
}

bool has_amxbf16_kernels() {
  return true;
}

}  // namespace octavo

#else

namespace octavo {

const KernelTable& amxbf16_kernels() {
  return scalar_kernels();
}

bool has_amxbf16_kernels() {
  return false;
}

}  // namespace octavo

#endif
