// Quantized products with AVX2.
//
// vpmaddubsw adds two products into 16 bits and saturates, which two products of up to 6 bits by
// an int8 cannot make it do. Its results are added in 16 bits that wrap around, over a whole
// scale's worth of columns: 16 columns of 6 bits or 32 of fewer. That is exact, because the sums
// start from minus the zero point times the activations they will meet, so that what comes out at
// the end is a sum of 16 products of -16..15 (8 of -32..31) by at most 127, which fits; what
// happened on the way does not matter. Then one vpmaddwd widens. Bytes are multiplied nibble by
// nibble.
#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

#include "kernels/linear_q8_ymm.h"

namespace octavo {
namespace {

struct Maddubs {
  using Terms = QuantizedRows::Terms;
  static constexpr bool kSplitsBytes = true;

  // 15 * 127 * 16 still fits without a zero point.
  template <class F>
  static constexpr bool kStarts = F::kZeroBits >= 0 || F::kPlanes > 0;

  // -(zero point) * (the two sums of the row's columns 0 and 1, 2 and 3 of each 4). Formats that
  // have none use that of their middle. Of a byte it is that of the high nibble.
  template <class F>
  static inline __attribute__((always_inline)) __m256i start(const Terms& terms, int half) {
    constexpr int kBits = F::kWide ? 3 : F::kZeroBits >= 0 ? F::kZeroBits : F::kBits - 1;
    __m256i lanes = load_four(&terms.neg_sum);
    if constexpr (F::kHalves) {
      const __m256i first = load_four(&terms.neg_sum_first);
      lanes = half == 0 ? first : _mm256_sub_epi16(lanes, first);
    }
    return _mm256_slli_epi16(lanes, kBits);
  }

  static inline __attribute__((always_inline)) __m256i first(__m256i w, __m256i a) {
    return _mm256_maddubs_epi16(w, a);
  }

  static inline __attribute__((always_inline)) __m256i add(__m256i sum, __m256i w, __m256i a) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, a));
  }

  static inline __attribute__((always_inline)) __m256i widen(__m256i sum, short factor) {
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(factor));
  }

  static inline __attribute__((always_inline)) __m256i negative(const Terms& terms, int half) {
    const __m256i first = load_four(&terms.neg_sum_first);
    return widen(half == 0 ? first : _mm256_sub_epi16(load_four(&terms.neg_sum), first), 1);
  }

  static inline __attribute__((always_inline)) __m256i finish(__m256i sum) { return widen(sum, 1); }

  // What a start stood for where the format has no zero point of its own.
  template <class F>
  static constexpr bool kCorrects = kStarts<F> && F::kZeroBits < 0;

  template <class F>
  static inline __attribute__((always_inline)) __m256i correction(const Terms& terms) {
    return widen(start<F>(terms, 0), -1);
  }

  static inline __attribute__((always_inline)) __m256i add_words(__m256i sum, __m256i w,
                                                                 __m256i a) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, a));
  }

  static inline __attribute__((always_inline)) __m256i finish_bytes(__m256i low, __m256i high) {
    return _mm256_add_epi32(widen(low, 1), widen(high, 16));
  }
};

}  // namespace

const KernelTable& avx2_kernels() {
  static const KernelTable table{.isa = "avx2",
                                 .quant_rows = kMaxRows,
                                 .float_rows = kFloatRowsAvx2,
                                 .quant = quant_kernel<Maddubs>,
                                 .floats = float_kernel_avx2,
                                 .expanded = expanded_kernels<Maddubs>,
                                 .quantize_group = quantize_group_lanes,
                                 .int8_loop = int8_loop_avx2,
                                 .read_loop = read_loop_avx2,
                                 .f32_loop = f32_loop_avx2,
                                 .bf16_loop = nullptr};
  return table;
}

}  // namespace octavo

#endif
