// Quantized products with AVX-512 VNNI: up to 12 rows of activations by one or two panels.
//
// A line of a panel is one register; vpdpbusd multiplies it by a 4-byte broadcast of a row. With
// two panels and 12 rows, 24 accumulators, 2 lines and a broadcast fill the 32 registers; the float
// sums then live on the stack (L1) and are touched once a group.
#include "kernels/kernels_avx512.h"

#if defined(__AVX512VNNI__)

#include <array>
#include <utility>

#include "kernels/format.h"

namespace octavo {
namespace {

inline __attribute__((always_inline)) __m512i load(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

inline __attribute__((always_inline)) __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The lines of column quads 2i and 2i+1 of a group.
template <SourceType S>
inline __attribute__((always_inline)) void load_quads(const uint8_t* group, int i, __m512i& even,
                                                      __m512i& odd) {
  using F = Format<S>;
  if constexpr (F::kLines == 8) {
    even = load(group + i * 128);
    odd = load(group + i * 128 + 64);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i line = load(group + i * 64);
    even = _mm512_and_si512(line, low);
    odd = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
    if constexpr (F::kPlanes > 0) {
      constexpr int kBits = F::kPlanes;
      constexpr int kQuads = 8 / kBits;
      const __m512i high = _mm512_set1_epi8(((1 << kBits) - 1) << 4);
      const __m512i plane = load(group + 256 + 2 * i / kQuads * 64);
      const int shift = 2 * i % kQuads * kBits;  // of the even quad's bits
      const auto place = [&](int s) __attribute__((always_inline)) {
        return s < 4 ? _mm512_slli_epi16(plane, static_cast<unsigned>(4 - s))
                     : _mm512_srli_epi16(plane, static_cast<unsigned>(s - 4));
      };
      even = _mm512_ternarylogic_epi32(even, place(shift), high, 0xf8);  // even | (place & high)
      odd = _mm512_ternarylogic_epi32(odd, place(shift + kBits), high, 0xf8);
    }
  }
}

// Scale of each of the 16 rows, of half `half` of the group.
template <SourceType S>
inline __attribute__((always_inline)) __m512 load_scale(const uint8_t* head, const uint8_t* group,
                                                        int half) {
  const uint8_t* tail = group + (Format<S>::kLines + Format<S>::kPlanes) * 64;
  if constexpr (S == SourceType::kQ4_K) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail));
    return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
  } else if constexpr (S == SourceType::kQ6_K) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + half * 16));
    return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  } else {
    return load_halves(tail);
  }
}

// The min that is added, of each of the 16 rows.
template <SourceType S>
inline __attribute__((always_inline)) __m512 load_min(const uint8_t* head, const uint8_t* group) {
  const uint8_t* tail = group + (Format<S>::kLines + Format<S>::kPlanes) * 64;
  if constexpr (S == SourceType::kQ4_K) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + 16));
    const __m512 product =
        _mm512_mul_ps(load_halves(head + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
    return _mm512_xor_ps(product, _mm512_set1_ps(-0.0f));
  } else {
    return load_halves(tail + 32);
  }
}

template <SourceType S, int P, int T>
struct Tile {
  using F = Format<S>;
  using Terms = QuantizedRows::Terms;
  static constexpr int kSteps = F::kHalves ? 2 : 1;  // scales of a group

  // Starting value of an accumulator: -(zero point) * (sum of the activations it will meet).
  static inline __attribute__((always_inline)) __m512i start(const Terms& terms, int step) {
    if constexpr (F::kZeroBits < 0) {
      return _mm512_setzero_si512();
    } else {
      __m512i neg = _mm512_set1_epi32(terms.neg_sum);
      if constexpr (F::kHalves) {
        const __m512i first = _mm512_set1_epi32(terms.neg_sum_first);
        neg = step == 0 ? first : _mm512_sub_epi32(neg, first);
      }
      return _mm512_slli_epi32(neg, F::kZeroBits);
    }
  }

  static inline __attribute__((always_inline)) void step(const uint8_t* const* head,
                                                         const uint8_t* const* group,
                                                         const uint8_t* q, const Terms* terms,
                                                         int half, __m512 (*c)[T]) {
    __m512i acc[P][T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const __m512i first = start(terms[t], half);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) acc[p][t] = first;
    }
    constexpr int kPairs = 4 / kSteps;
#pragma GCC unroll 4
    for (int i = half * kPairs; i < half * kPairs + kPairs; ++i) {
      __m512i w[2][P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) load_quads<S>(group[p], i, w[0][p], w[1][p]);
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
          int four;
          __builtin_memcpy(&four, q + t * kGroup + (2 * i + j) * 4, 4);
          const __m512i a = _mm512_set1_epi32(four);
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p) acc[p][t] = _mm512_dpbusd_epi32(acc[p][t], w[j][p], a);
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512 scale = load_scale<S>(head[p], group[p], half);
      __m512 min = _mm512_setzero_ps();
      if constexpr (F::kMin) min = load_min<S>(head[p], group[p]);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
        c[p][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[p][t]), both, c[p][t]);
        if constexpr (F::kMin) {
          c[p][t] = _mm512_fmadd_ps(min, _mm512_set1_ps(terms[t].sum), c[p][t]);
        }
      }
    }
  }

  static void run(const QuantTileArgs& a) {
    __m512 c[P][T];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) c[p][t] = _mm512_setzero_ps();
    }
    const uint8_t* q = a.q;
    const uint8_t* terms = a.terms;
    const uint8_t* head[P];
    const uint8_t* group[P];
    for (int p = 0; p < P; ++p) group[p] = a.panel + static_cast<size_t>(p) * a.panel_bytes;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      for (int p = 0; p < P; ++p) {
        head[p] = group[p];
        group[p] += F::kHead;
      }
      for (int g = 0; g < F::kSuper; ++g) {
        constexpr size_t kAhead = 1344;
        for (int p = 0; p < P; ++p) {
          for (size_t b = 0; b < kGroupBytes<S>; b += 64) {
            _mm_prefetch(reinterpret_cast<const char*>(group[p] + kAhead + b), _MM_HINT_T0);
          }
        }
#pragma GCC unroll 2
        for (int half = 0; half < kSteps; ++half) {
          step(head, group, q, reinterpret_cast<const Terms*>(terms), half, c);
        }
        for (int p = 0; p < P; ++p) group[p] += kGroupBytes<S>;
        q += a.group_stride;
        terms += a.group_stride;
      }
    }
    for (int p = 0; p < P; ++p) {
      const int valid = a.valid - p * kPanelRows;
      const __mmask16 mask =
          valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << valid) - 1);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        _mm512_mask_storeu_ps(a.out + t * a.ldo + p * kPanelRows, mask, c[p][t]);
      }
    }
  }
};

constexpr int kMaxRows = 12;
constexpr int kPairFrom = 5;

template <SourceType S, int P, int... T>
constexpr std::array<QuantTileKernel, sizeof...(T)> tiles(std::integer_sequence<int, T...>) {
  return {Tile<S, P, T + 1>::run...};
}

template <SourceType S>
QuantTileKernel pick(int panels, int rows) {
  static constexpr auto kOne = tiles<S, 1>(std::make_integer_sequence<int, kMaxRows>{});
  static constexpr auto kTwo = tiles<S, 2>(std::make_integer_sequence<int, kMaxRows>{});
  return (panels == 1 ? kOne : kTwo)[static_cast<size_t>(rows - 1)];
}

}  // namespace

QuantTileKernel quant_kernel_avx512(SourceType source, int panels, int rows) {
  QuantTileKernel kernel = nullptr;
  with_format(source, [&]<SourceType S>() { kernel = pick<S>(panels, rows); });
  return kernel;
}

const KernelTable& avx512_kernels() {
  static const KernelTable table{"avx512",
                                 kMaxRows,
                                 kPairFrom,
                                 kFloatRowsAvx512,
                                 quant_kernel_avx512,
                                 float_kernel_avx512,
                                 quantize_group_avx512};
  return table;
}

}  // namespace octavo

#endif
