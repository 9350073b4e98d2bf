// Float products with AVX-512: up to 6 rows by one panel, four sums each so that the multiply-adds
// of a single row need not wait for one another.
#include "kernels/format.h"
#include "kernels/kernels_avx512.h"

#if defined(__AVX512F__)

#include <array>
#include <utility>

namespace octavo {
namespace {

// 16 weights of column k + j, j = 0..3, k a multiple of 4.
template <PanelLayout L>
inline __attribute__((always_inline)) __m512 load_column(const uint8_t* panel, int64_t k, int j) {
  if constexpr (L == PanelLayout::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(panel) + (k + j) * kPanelRows);
  } else if constexpr (L == PanelLayout::kF16) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + (k + j) * 32)));
  } else if constexpr (L == PanelLayout::kE5M2) {
    const uint8_t* group = e5m2_group(panel, k);
    const __m128i codes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + e5m2_codes(k + j)));
    const __m512 w = _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8));
    return _mm512_mul_ps(w, _mm512_loadu_ps(group));
  } else {
    const __m512i pair = _mm512_loadu_si512(panel + (k + (j & ~1)) * 32);
    return _mm512_castsi512_ps(
        j % 2 == 0 ? _mm512_slli_epi32(pair, 16)
                   : _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
}

template <PanelLayout L, int T>
void tile(const FloatTileArgs& a) {
  __m512 c[4][T];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) c[j][t] = _mm512_setzero_ps();
  }
  const auto column = [&](int64_t k, int j) __attribute__((always_inline)) {
    const __m512 w = load_column<L>(a.panel, k, j);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      c[j][t] = _mm512_fmadd_ps(w, _mm512_set1_ps(a.x[t * a.ldx + k + j]), c[j][t]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= a.k; k += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) column(k, j);
  }
  if (k < a.k) column(k, 0);
  if (k + 1 < a.k) column(k, 1);
  if (k + 2 < a.k) column(k, 2);
  const __mmask16 mask =
      a.valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << a.valid) - 1);
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(c[0][t], c[1][t]), _mm512_add_ps(c[2][t], c[3][t]));
    _mm512_mask_storeu_ps(a.out + t * a.ldo, mask, sum);
  }
}

template <PanelLayout L, int... T>
FloatTileKernel pick(int rows, std::integer_sequence<int, T...>) {
  static constexpr std::array<FloatTileKernel, sizeof...(T)> kTiles{tile<L, T + 1>...};
  return kTiles[static_cast<size_t>(rows - 1)];
}

}  // namespace

FloatTileKernel float_kernel_avx512(PanelLayout layout, int rows) {
  constexpr auto kRows = std::make_integer_sequence<int, kFloatRowsAvx512>{};
  switch (layout) {
    case PanelLayout::kF16:
      return pick<PanelLayout::kF16>(rows, kRows);
    case PanelLayout::kBF16:
      return pick<PanelLayout::kBF16>(rows, kRows);
    case PanelLayout::kE5M2:
      return pick<PanelLayout::kE5M2>(rows, kRows);
    default:
      return pick<PanelLayout::kF32>(rows, kRows);
  }
}

}  // namespace octavo

#endif
