// Quantized products with vpdpbusd on 256-bit registers. Two files include this, for the two
// encodings of the instruction: AVX-VNNI (VEX) and AVX-512 VNNI with VL (EVEX).
#pragma once

#include "kernels/kernels_avx2.h"
#include "kernels/linear_q8_ymm.h"

namespace octavo {
namespace {

struct Dpbusd {
  using Terms = QuantizedRows::Terms;
  static constexpr bool kSplitsBytes = false;

  template <class F>
  static constexpr bool kStarts = F::kZeroBits >= 0;

  // -(zero point) * (sum of the activations that will be met).
  template <class F>
  static inline __attribute__((always_inline)) __m256i start(const Terms& terms, int half) {
    __m256i neg = load_four(&terms.neg_sum);
    if constexpr (F::kHalves) {
      const __m256i first = load_four(&terms.neg_sum_first);
      neg = half == 0 ? first : _mm256_sub_epi32(neg, first);
    }
    return _mm256_slli_epi32(neg, F::kZeroBits);
  }

  static inline __attribute__((always_inline)) __m256i negative(const Terms& terms, int half) {
    const int first = terms.neg_sum_first;
    return _mm256_set1_epi32(half == 0 ? first : terms.neg_sum - first);
  }

  static inline __attribute__((always_inline)) __m256i first(__m256i w, __m256i a) {
    return add(_mm256_setzero_si256(), w, a);
  }

  static inline __attribute__((always_inline)) __m256i add(__m256i sum, __m256i w, __m256i a) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, w, a);
#else
    return _mm256_dpbusd_epi32(sum, w, a);
#endif
  }

  static inline __attribute__((always_inline)) __m256i add_words(__m256i sum, __m256i w,
                                                                 __m256i a) {
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sum, w, a);
#else
    return _mm256_dpwssd_epi32(sum, w, a);
#endif
  }

  static inline __attribute__((always_inline)) __m256i finish(__m256i sum) { return sum; }

  template <class F>
  static constexpr bool kCorrects = false;
};

int64_t int8_loop(int64_t loops, int) {
  constexpr int kChains = 12;
  __m256i acc[kChains];
  const __m256i a = _mm256_set1_epi32(static_cast<int>(loops));
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) acc[j] = _mm256_setzero_si256();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      acc[j] = Dpbusd::add(acc[j], a, a);
      asm volatile("" : "+x"(acc[j]));  // keep it in its register, and keep it
    }
  }
  return loops * kChains * 64;
}

KernelTable vnni256_table() {
  return {.isa = "avxvnni",
          .quant_rows = kMaxRows,
          .float_rows = kFloatRowsAvx2,
          .quant = quant_kernel<Dpbusd>,
          .floats = float_kernel_avx2,
          .expanded = expanded_kernels<Dpbusd>,
          .quantize_group = quantize_group_avx2,
          .int8_loop = int8_loop,
          .read_loop = read_loop_avx2,
          .f32_loop = f32_loop_avx2,
          .bf16_loop = nullptr};
}

}  // namespace
}  // namespace octavo
