// Quantized products of many rows with AMX, of the types whose half groups have whole-numbered
// scales: scales are multiplied into the elements when a panel is unpacked.
//
// An element times its scale is a whole number of up to 15 bits, low + 256 * high in signed bytes.
// So 16 rows of a group of activations by the lows and by the highs are two tile products, whose
// sums meet as integers; in kernels that keep the halves apart they are two as well, but each needs
// a conversion and a multiplication by its scale. Sums are below 2^24, and so exact in float, as
// they are there. Unpacking takes twice as long, so this is for many rows.
#include "kernels/kernel_table.h"

#if defined(__AMX_INT8__)

#include "kernels/amx_products.h"
#include "kernels/kernels_amx.h"

namespace octavo {
namespace {

constexpr int64_t kGroupsAtOnce = 32;

// A group is 8 lines of lows and, if kHigh, 8 of highs; with mins then floats [2 halves][16]. A
// block of 8 is headed by its scales [16] and with mins the scales of those.
template <SourceType S>
struct Folded {
  using F = Format<S>;
  // Two bits by four, Q2_K's, fit a byte.
  static constexpr bool kHigh = !F::kHalvesMin;
  static constexpr size_t kHead = F::kHalvesMin ? 128 : 64;
  static constexpr size_t kLines = kHigh ? 1024 : 512;
  static constexpr size_t kBytes = kLines + (F::kHalvesMin ? 128 : 0);
  static_assert(kGroupsAtOnce * (kBytes + kHead / F::kSuper) <= 64 * kExpandedGroupBytes);
};

// Scales of 16 rows as 16-bit integers, four of each row: rows 0 to 7, or 8 to 15.
template <SourceType S>
OCTAVO_INLINE __m512i repeated_scales(const uint8_t* group, int half, int from_row) {
  using F = Format<S>;
  const uint8_t* bytes = group + F::kElementBytes + half * 16;
  __m512i scale = F::kHalvesMin ? _mm512_and_si512(unsigned_bytes(bytes), _mm512_set1_epi32(15))
                                : signed_bytes(bytes);
  scale = _mm512_or_si512(_mm512_slli_epi32(scale, 16),
                          _mm512_and_si512(scale, _mm512_set1_epi32(0xffff)));
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_permutexvar_epi32(_mm512_add_epi32(twice, _mm512_set1_epi32(from_row)), scale);
}

// Elements of 8 rows times their scales, to 32 bytes of lows and of highs.
template <bool kHigh>
OCTAVO_INLINE void store_folded(__m256i elements, __m512i scales, uint8_t* low) {
  const __m512i w = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(elements), scales);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_cvtepi16_epi8(w));
  if constexpr (kHigh) {
    const __m512i high = _mm512_srai_epi16(_mm512_add_epi16(w, _mm512_set1_epi16(128)), 8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low + 512), _mm512_cvtepi16_epi8(high));
  }
}

template <SourceType S>
void expand_folded(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out) {
  using From = Stored<S>;
  using To = Folded<S>;
  using F = Format<S>;
  for (int64_t g = begin; g < end; ++g) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    if (g % F::kSuper == 0) {
      _mm512_storeu_ps(out, From::scale(head, group));
      if constexpr (F::kHalvesMin) _mm512_storeu_ps(out + 64, From::min_scale(head));
      out += To::kHead;
    }
    const __m512i zero = _mm512_set1_epi8(static_cast<char>(F::kZeroPoint));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i first = repeated_scales<S>(group, half, 0);
      const __m512i last = repeated_scales<S>(group, half, 8);
#pragma GCC unroll 4
      for (int j = half * 4; j < half * 4 + 4; ++j) {
        const __m512i quad = _mm512_sub_epi8(From::quad(head, group, j), zero);
        store_folded<To::kHigh>(_mm512_castsi512_si256(quad), first, out + j * 64);
        store_folded<To::kHigh>(_mm512_extracti64x4_epi64(quad, 1), last, out + j * 64 + 32);
      }
      if constexpr (F::kHalvesMin) {
        _mm512_storeu_ps(out + To::kLines + half * 64, From::half_min(group, half));
      }
    }
    out += To::kBytes;
  }
}

// Tiles 0 and 1 are sums by lows and by highs, 2 and 3 those of the next group; 4 and 5 hold
// activations, 6 and 7 lows and highs.
constexpr TileShapes folded_shapes() {
  TileShapes shapes;
  for (int i = 0; i < 4; ++i) shapes.shape(i, kTileRows, kAmxBytes);
  for (int i = 4; i < 6; ++i) shapes.shape(i, kTileRows, kGroup);
  for (int i = 6; i < 8; ++i) shapes.shape(i, kGroup / 4, kAmxBytes);
  return shapes;
}

void open_folded() {
  static constexpr TileShapes kShapes = folded_shapes();
  open_tiles(kShapes);
}

struct FoldedSums {
  Sums low;
  Sums high;
};

template <int i, bool kHigh>
OCTAVO_INLINE void multiply(const uint8_t* q, const uint8_t* lines) {
  tile_load<4 + i>(q, kGroup);
  tile_load<6>(lines, 64);
  tile_zero<2 * i>();
  tile_add_bytes<2 * i, 4 + i, 6>();
  if constexpr (kHigh) {
    tile_load<7>(lines + 512, 64);
    tile_zero<2 * i + 1>();
    tile_add_bytes<2 * i + 1, 4 + i, 7>();
  }
}

template <int i, bool kHigh>
OCTAVO_INLINE void take(FoldedSums& sums) {
  tile_store<2 * i>(sums.low.at, kAmxBytes);
  if constexpr (kHigh) tile_store<2 * i + 1>(sums.high.at, kAmxBytes);
}

// T rows by groups of one format.
template <SourceType S, int T>
struct FoldedGroups {
  using Terms = QuantizedRows::Terms;
  using P = Folded<S>;
  static constexpr bool kHigh = P::kHigh;
  static constexpr bool kMin = Format<S>::kHalvesMin;
  static constexpr int kSuper = Format<S>::kSuper;

  // s: the sums of a block; m: of its mins.
  static OCTAVO_INLINE void add(const FoldedSums& sums, const uint8_t* group,
                                const uint8_t* terms_at, __m512 (&s)[T], __m512 (&m)[T]) {
    const auto* terms = reinterpret_cast<const Terms*>(terms_at);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      __m512 sum;
      if constexpr (kHigh) {
        const __m512i high = _mm512_slli_epi32(sums.high.integers(t), 8);
        sum = _mm512_cvtepi32_ps(_mm512_add_epi32(high, sums.low.integers(t)));
      } else {
        sum = sums.low.row(t);
      }
      s[t] = _mm512_fmadd_ps(sum, _mm512_set1_ps(terms[t].scale), s[t]);
    }
    if constexpr (kMin) {
      const __m512 first = load_floats(group + P::kLines);
      const __m512 second = load_floats(group + P::kLines + 64);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const int neg = terms[t].neg_sum_first;
        const __m512 x = _mm512_mul_ps(first, _mm512_set1_ps(static_cast<float>(neg)));
        const __m512 rest = _mm512_set1_ps(static_cast<float>(terms[t].neg_sum - neg));
        const __m512 both = _mm512_fmadd_ps(second, rest, x);
        m[t] = _mm512_fmadd_ps(both, _mm512_set1_ps(terms[t].scale), m[t]);
      }
    }
  }

  static OCTAVO_INLINE void begin(const uint8_t* q, const uint8_t* panel) {
    multiply<0, kHigh>(q, panel + P::kHead);
  }

  static OCTAVO_INLINE void run(const QuantTileArgs& a, const uint8_t* next_panel, __m512 (&c)[T]) {
    FoldedSums sums[2];
    const uint8_t *q = a.q, *terms = a.terms, *group = a.panel + P::kHead;
    const size_t stride = a.group_stride;
    const uint8_t* ahead = a.ahead;
    for (int64_t super = 0; super < a.groups; super += kSuper) {
      __m512 s[T];
      __m512 m[T];
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) s[t] = m[t] = _mm512_setzero_ps();
#pragma GCC unroll 1
      for (int g = 0; g < kSuper; g += 2) {
        const bool last = g == kSuper - 2;
        const uint8_t* next = group + 2 * P::kBytes + (last ? P::kHead : 0);
        multiply<1, kHigh>(q + stride, group + P::kBytes);
        take<0, kHigh>(sums[0]);
        ahead = ask_ahead(ahead, 2 * a.ahead_bytes);
        if (g > 0) add(sums[1], group - P::kBytes, terms - stride, s, m);
        if (super + g + 2 < a.groups) {
          multiply<0, kHigh>(q + 2 * stride, next);
        } else if (next_panel != nullptr) {
          begin(a.q, next_panel);
        }
        take<1, kHigh>(sums[1]);
        add(sums[0], group, terms, s, m);
        if (last) add(sums[1], group + P::kBytes, terms + stride, s, m);
        q += 2 * stride, terms += 2 * stride, group = next;
      }
      const uint8_t* head = group - 2 * P::kHead - kSuper * P::kBytes;
      const __m512 scale = load_floats(head);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(s[t], scale, c[t]);
      if constexpr (kMin) {
        const __m512 min_scale = load_floats(head + 64);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(m[t], min_scale, c[t]);
      }
    }
  }
};

template <SourceType S>
struct OfSource {
  template <int T>
  using Sum = FoldedGroups<S, T>;
};

}  // namespace

ExpandedKernels folded_kernels_amx(SourceType source) {
  constexpr auto kRows = std::make_integer_sequence<int, kTileRows>{};
  ExpandedKernels kernels{};
  with_format(source, [&]<SourceType S>() {
    // Scales that are floats do not go into elements.
    if constexpr (Format<S>::kHalves && !Format<S>::kHalvesFloat) {
      kernels.expand = expand_folded<S>;
      kernels.tiles = tiles<OfSource<S>::template Sum>(kRows);
      kernels.from_rows = 96;
      kernels.most_rows = kTileRows;
      kernels.all_panels = true;
      kernels.groups = kGroupsAtOnce;
      kernels.open = open_folded;
      kernels.close = close_tiles;
    }
  });
  return kernels;
}

}  // namespace octavo

#endif
