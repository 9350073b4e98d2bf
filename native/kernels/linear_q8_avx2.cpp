// Quantized products with AVX2: up to 6 rows of activations by one panel.
//
// vpmaddubsw adds two products into 16 bits and saturates, so as many lines are summed in 16 bits
// as can never overflow (15 * 127 * 2 * 8 lines of 4 bits, 4 lines of 5, 2 of 6); bytes are
// multiplied nibble by nibble. All sums are exact.
#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

#include <array>
#include <utility>

#include "kernels/format.h"

namespace octavo {
namespace {

inline __attribute__((always_inline)) __m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

inline __attribute__((always_inline)) __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __attribute__((always_inline)) __m128i load_8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}

// Column quad j of rows 8h..8h+7 of a group. Bytes come as their low or high nibbles.
template <SourceType S, bool kHigh>
inline __attribute__((always_inline)) __m256i load_quad(const uint8_t* group, int j, int h) {
  using F = Format<S>;
  const __m256i low = _mm256_set1_epi8(15);
  if constexpr (F::kBytesOnly) {
    const __m256i line = load(group + j * 64 + h * 32);
    return _mm256_and_si256(kHigh ? _mm256_srli_epi16(line, 4) : line, low);
  } else {
    const __m256i line = load(group + j / 2 * 64 + h * 32);
    const __m256i nibble = _mm256_and_si256(j % 2 == 0 ? line : _mm256_srli_epi16(line, 4), low);
    if constexpr (F::kPlanes == 0) {
      return nibble;
    } else {
      constexpr int kBits = F::kPlanes;  // above the nibble
      constexpr int kQuads = 8 / kBits;
      const __m256i plane = load(group + 256 + j / kQuads * 64 + h * 32);
      const int shift = j % kQuads * kBits;
      const __m256i placed =
          shift < 4 ? _mm256_slli_epi16(plane, 4 - shift) : _mm256_srli_epi16(plane, shift - 4);
      const __m256i high = _mm256_set1_epi8(((1 << kBits) - 1) << 4);
      return _mm256_or_si256(nibble, _mm256_and_si256(placed, high));
    }
  }
}

// Scale of rows 8h..8h+7, of half `half` of the group.
template <SourceType S>
inline __attribute__((always_inline)) __m256 load_scale(const uint8_t* head, const uint8_t* group,
                                                        int half, int h) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    const __m256i sc = _mm256_cvtepu8_epi32(load_8(tail + h * 8));
    return _mm256_mul_ps(load_halves(head + h * 16), _mm256_cvtepi32_ps(sc));
  } else if constexpr (Format<S>::kScales == Scales::kHalves) {
    const __m256i sc = _mm256_cvtepi8_epi32(load_8(tail + half * 16 + h * 8));
    return _mm256_mul_ps(load_halves(head + h * 16), _mm256_cvtepi32_ps(sc));
  } else {
    return load_halves(tail + h * 16);
  }
}

// The min that is added, of rows 8h..8h+7.
template <SourceType S>
inline __attribute__((always_inline)) __m256 load_min(const uint8_t* head, const uint8_t* group,
                                                      int h) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    const __m256i min = _mm256_cvtepu8_epi32(load_8(tail + 16 + h * 8));
    const __m256 product = _mm256_mul_ps(load_halves(head + 32 + h * 16), _mm256_cvtepi32_ps(min));
    return _mm256_xor_ps(product, _mm256_set1_ps(-0.0f));
  } else {
    return load_halves(tail + 32 + h * 16);
  }
}

template <SourceType S, int T>
struct Tile {
  using F = Format<S>;
  using Terms = QuantizedRows::Terms;
  static constexpr int kSteps = F::kHalves ? 2 : 1;
  // Column quads that may be summed in 16 bits.
  static constexpr int kShort = 8 >> F::kPlanes;

  static inline __attribute__((always_inline)) __m256i start(const Terms& terms, int step) {
    if constexpr (F::kZeroBits < 0) {
      return _mm256_setzero_si256();
    } else {
      int neg = terms.neg_sum;
      if (F::kHalves) neg = step == 0 ? terms.neg_sum_first : neg - terms.neg_sum_first;
      return _mm256_set1_epi32(neg * (1 << F::kZeroBits));
    }
  }

  // acc[t] += the integer products of one scale's worth of columns (times 16: the high nibbles).
  template <bool kHigh>
  static inline __attribute__((always_inline)) void add_products(const uint8_t* group,
                                                                 const uint8_t* q, int half, int h,
                                                                 __m256i (&acc)[T]) {
    constexpr int kQuads = 8 / kSteps;
#pragma GCC unroll 8
    for (int j = 0; j < kQuads; j += kShort) {
      __m256i sum[T];
#pragma GCC unroll 8
      for (int i = 0; i < kShort && i < kQuads; ++i) {
        // Loading twice is free; keeping a value while there are no registers left is not.
        asm volatile("" ::: "memory");
        const int quad = half * kQuads + j + i;
        const __m256i w = load_quad<S, kHigh>(group, quad, h);
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          int four;
          __builtin_memcpy(&four, q + t * kGroup + quad * 4, 4);
          const __m256i product = _mm256_maddubs_epi16(w, _mm256_set1_epi32(four));
          sum[t] = i == 0 ? product : _mm256_add_epi16(sum[t], product);
          asm volatile("" : "+x"(sum[t]));  // else GCC makes a tree of the sums, and spills
        }
      }
      const __m256i factor = _mm256_set1_epi16(kHigh ? 16 : 1);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(sum[t], factor));
      }
    }
  }

  // Rows 8h..8h+7 of the panel, one scale's worth of columns: a group, or half of one.
  static inline __attribute__((always_inline)) void step(const uint8_t* head, const uint8_t* group,
                                                         const uint8_t* q, const Terms* terms,
                                                         int half, int h, __m256* c) {
    __m256i acc[T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) acc[t] = start(terms[t], half);
    add_products<false>(group, q, half, h, acc);
    if constexpr (F::kBytesOnly) add_products<true>(group, q, half, h, acc);
    asm volatile("" ::: "memory");
    const __m256 scale = load_scale<S>(head, group, half, h);
    __m256 min = _mm256_setzero_ps();
    if constexpr (F::kMin) min = load_min<S>(head, group, h);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(terms[t].scale));
      c[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[t]), both, c[t]);
      if constexpr (F::kMin) c[t] = _mm256_fmadd_ps(min, _mm256_set1_ps(terms[t].sum), c[t]);
    }
  }

  static inline __attribute__((always_inline)) void store(const __m256 (*c)[T],
                                                          const QuantTileArgs& a) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      float* out = a.out + t * a.ldo;
      if (a.valid >= kPanelRows) {
        _mm256_storeu_ps(out, c[0][t]);
        _mm256_storeu_ps(out + 8, c[1][t]);
      } else {
        alignas(32) float rows[kPanelRows];
        _mm256_store_ps(rows, c[0][t]);
        _mm256_store_ps(rows + 8, c[1][t]);
        __builtin_memcpy(out, rows, static_cast<size_t>(a.valid) * sizeof(float));
      }
    }
  }

  static void run(const QuantTileArgs& a) {
    __m256 c[2][T];
    for (int h = 0; h < 2; ++h) {
      for (int t = 0; t < T; ++t) c[h][t] = _mm256_setzero_ps();
    }
    const uint8_t* q = a.q;
    const uint8_t* terms = a.terms;
    const uint8_t* group = a.panel;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      const uint8_t* head = group;
      group += F::kHead;
      for (int g = 0; g < F::kSuper; ++g) {
        constexpr size_t kAhead = 1344;
        for (size_t b = 0; b < kGroupBytes<S>; b += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + b), _MM_HINT_T0);
        }
#pragma GCC unroll 2
        for (int half = 0; half < kSteps; ++half) {
#pragma GCC unroll 2
          for (int h = 0; h < 2; ++h) {
            step(head, group, q, reinterpret_cast<const Terms*>(terms), half, h, c[h]);
          }
        }
        group += kGroupBytes<S>;
        q += a.group_stride;
        terms += a.group_stride;
      }
    }
    store(c, a);
  }
};

constexpr int kMaxRows = 6;

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

const KernelTable& avx2_kernels() {
  static const KernelTable table{.isa = "avx2",
                                 .quant_rows = kMaxRows,
                                 .float_rows = kFloatRowsAvx2,
                                 .quant = quant_kernel,
                                 .floats = float_kernel_avx2,
                                 .quantize_group = quantize_group_avx2,
                                 .int8_loop = int8_loop_avx2,
                                 .read_loop = read_loop_avx2,
                                 .f32_loop = f32_loop_avx2,
                                 .bf16_loop = nullptr};
  return table;
}

}  // namespace octavo

#endif
