// Quantized products with AVX-512 VNNI: up to 12 rows of activations by one panel.
//
// A line of a panel is one register; vpdpbusd multiplies it by a 4-byte broadcast of a row. The
// integer and the float sums of 12 rows fill 24 registers and nothing is stored before the end: on
// Zen 4 vpdpbusd and float multiplication share two of four pipes and a 64-byte store costs about
// as much as two of them, while broadcasts, shifts, masks, conversions and additions are free. So
// what counts is 8 vpdpbusd against 2 (3 with mins) float multiplications a group.
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

// The line of column quad j of a group.
template <SourceType S>
inline __attribute__((always_inline)) __m512i load_quad(const uint8_t* group, int j) {
  using F = Format<S>;
  if constexpr (F::kBytesOnly) return load(group + j * 64);
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i line = load(group + j / 2 * 64);
  const __m512i nibble = _mm512_and_si512(j % 2 == 0 ? line : _mm512_srli_epi16(line, 4), low);
  if constexpr (F::kPlanes == 0) {
    return nibble;
  } else {
    constexpr int kBits = F::kPlanes;  // above the nibble
    constexpr int kQuads = 8 / kBits;
    const __m512i plane = load(group + 256 + j / kQuads * 64);
    const int shift = j % kQuads * kBits;
    const __m512i placed = shift < 4 ? _mm512_slli_epi16(plane, static_cast<unsigned>(4 - shift))
                                     : _mm512_srli_epi16(plane, static_cast<unsigned>(shift - 4));
    const __m512i high = _mm512_set1_epi8(((1 << kBits) - 1) << 4);
    return _mm512_or_si512(nibble, _mm512_and_si512(placed, high));
  }
}

// Scale of each of the 16 rows, of half `half` of the group.
template <SourceType S>
inline __attribute__((always_inline)) __m512 load_scale(const uint8_t* head, const uint8_t* group,
                                                        int half) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail));
    return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
  } else if constexpr (Format<S>::kScales == Scales::kHalves) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + half * 16));
    return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  } else {
    return load_halves(tail);
  }
}

// The min that is added, of each of the 16 rows.
template <SourceType S>
inline __attribute__((always_inline)) __m512 load_min(const uint8_t* head, const uint8_t* group) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + 16));
    const __m512 product =
        _mm512_mul_ps(load_halves(head + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
    return _mm512_xor_ps(product, _mm512_set1_ps(-0.0f));
  } else {
    return load_halves(tail + 32);
  }
}

template <SourceType S, int T>
struct Tile {
  using F = Format<S>;
  using Terms = QuantizedRows::Terms;
  static constexpr int kSteps = F::kHalves ? 2 : 1;  // scales of a group

  // Starting value of an accumulator: -(zero point) * (sum of the activations it will meet).
  static inline __attribute__((always_inline)) __m512i start(const Terms& terms, int half) {
    if constexpr (F::kZeroBits < 0) {
      return _mm512_setzero_si512();
    } else {
      __m512i neg = _mm512_set1_epi32(terms.neg_sum);
      if constexpr (F::kHalves) {
        const __m512i first = _mm512_set1_epi32(terms.neg_sum_first);
        neg = half == 0 ? first : _mm512_sub_epi32(neg, first);
      }
      return _mm512_slli_epi32(neg, F::kZeroBits);
    }
  }

  // Adds one scale's worth of columns: a group, or half of one.
  static inline __attribute__((always_inline)) void step(const uint8_t* head, const uint8_t* group,
                                                         const uint8_t* q, const Terms* terms,
                                                         int half, __m512 (&c)[T]) {
    __m512i acc[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) acc[t] = start(terms[t], half);
    constexpr int kQuads = 8 / kSteps;
#pragma GCC unroll 8
    for (int j = half * kQuads; j < half * kQuads + kQuads; ++j) {
      // Loading a line twice is free; keeping it in a register while there are none left is not.
      asm volatile("" ::: "memory");
      const __m512i w = load_quad<S>(group, j);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        int four;
        __builtin_memcpy(&four, q + t * kGroup + j * 4, 4);
        acc[t] = _mm512_dpbusd_epi32(acc[t], w, _mm512_set1_epi32(four));
      }
    }
    const __m512 scale = load_scale<S>(head, group, half);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
      c[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t]), both, c[t]);
    }
    if constexpr (F::kMin) {
      const __m512 min = load_min<S>(head, group);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        c[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(terms[t].sum), c[t]);
      }
    }
  }

  static void run(const QuantTileArgs& a) {
    __m512 c[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) c[t] = _mm512_setzero_ps();
    const uint8_t* q = a.q;
    const uint8_t* terms = a.terms;
    const uint8_t* group = a.panel;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      const uint8_t* head = group;
      group += F::kHead;
#pragma GCC unroll 1
      for (int g = 0; g < F::kSuper; ++g) {
        constexpr size_t kAhead = 1344;
        for (size_t b = 0; b < kGroupBytes<S>; b += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + b), _MM_HINT_T0);
        }
#pragma GCC unroll 2
        for (int half = 0; half < kSteps; ++half) {
          step(head, group, q, reinterpret_cast<const Terms*>(terms), half, c);
        }
        group += kGroupBytes<S>;
        q += a.group_stride;
        terms += a.group_stride;
      }
    }
    const __mmask16 mask =
        a.valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << a.valid) - 1);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(a.out + t * a.ldo, mask, c[t]);
  }
};

constexpr int kMaxRows = 12;

template <SourceType S, int... T>
QuantTileKernel pick(int rows, std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{Tile<S, T + 1>::run...};
  return kTiles[static_cast<size_t>(rows - 1)];
}

QuantTileKernel quant_kernel(SourceType source, int rows) {
  QuantTileKernel kernel = nullptr;
  with_format(source, [&]<SourceType S>() {
    kernel = pick<S>(rows, std::make_integer_sequence<int, kMaxRows>{});
  });
  return kernel;
}

}  // namespace

const KernelTable& avx512_kernels() {
  static const KernelTable table{
      .isa = "avx512",
      .quant_rows = kMaxRows,
      .float_rows = kFloatRowsAvx512,
      .quant = quant_kernel,
      .floats = float_kernel_avx512,
      .quantize_group = quantize_group_avx512,
      .int8_loop = int8_loop_avx512,
      .read_loop = read_loop_avx512,
      .f32_loop = f32_loop_avx512,
      .bf16_loop = __builtin_cpu_supports("avx512bf16") ? bf16_loop_avx512 : nullptr};
  return table;
}

}  // namespace octavo

#endif
