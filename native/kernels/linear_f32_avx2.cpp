// Float products with AVX2: up to 3 rows by one panel, half a panel at a time, four sums each.
#include "kernels/format.h"
#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

namespace octavo {
namespace {

// Weights of column k + j (j = 0..3, k a multiple of 4), rows 8h..8h+7.
template <PanelLayout L>
inline __attribute__((always_inline)) __m256 load_column(const uint8_t* panel, int64_t k, int j,
                                                         int h) {
  if constexpr (L == PanelLayout::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(panel) + (k + j) * kPanelRows + h * 8);
  } else if constexpr (L == PanelLayout::kF16) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + (k + j) * 32 + h * 16)));
  } else if constexpr (L == PanelLayout::kE5M2) {
    const uint8_t* group = e5m2_group(panel, k);
    const __m128i codes =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(group + e5m2_codes(k + j) + h * 8));
    const __m256 w = _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), codes));
    return _mm256_mul_ps(w, _mm256_loadu_ps(reinterpret_cast<const float*>(group) + h * 8));
  } else {
    const __m256i pair =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + (k + (j & ~1)) * 32 + h * 32));
    return _mm256_castsi256_ps(
        j % 2 == 0 ? _mm256_slli_epi32(pair, 16)
                   : _mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
}

// Sixteen dot products' worth of rows h of T activation rows.
template <PanelLayout L, int T>
inline __attribute__((always_inline)) void half_tile(const FloatTileArgs& a, int h,
                                                     float (*rows)[kPanelRows]) {
  __m256 c[4][T];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) c[j][t] = _mm256_setzero_ps();
  }
  const auto column = [&](int64_t k, int j) __attribute__((always_inline)) {
    const __m256 w = load_column<L>(a.panel, k, j, h);
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) {
      c[j][t] = _mm256_fmadd_ps(w, _mm256_set1_ps(a.x[t * a.ldx + k + j]), c[j][t]);
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
#pragma GCC unroll 3
  for (int t = 0; t < T; ++t) {
    const __m256 sum =
        _mm256_add_ps(_mm256_add_ps(c[0][t], c[1][t]), _mm256_add_ps(c[2][t], c[3][t]));
    _mm256_storeu_ps(rows[t] + h * 8, sum);
  }
}

template <PanelLayout L, int T>
void tile(const FloatTileArgs& a) {
  alignas(32) float rows[T][kPanelRows];
  half_tile<L, T>(a, 0, rows);
  half_tile<L, T>(a, 1, rows);
  for (int t = 0; t < T; ++t) {
    __builtin_memcpy(a.out + t * a.ldo, rows[t], static_cast<size_t>(a.valid) * sizeof(float));
  }
}

template <PanelLayout L>
FloatTileKernel pick(int rows) {
  return rows == 1 ? tile<L, 1> : rows == 2 ? tile<L, 2> : tile<L, 3>;
}

}  // namespace

FloatTileKernel float_kernel_avx2(PanelLayout layout, int rows) {
  switch (layout) {
    case PanelLayout::kF16:
      return pick<PanelLayout::kF16>(rows);
    case PanelLayout::kBF16:
      return pick<PanelLayout::kBF16>(rows);
    case PanelLayout::kE5M2:
      return pick<PanelLayout::kE5M2>(rows);
    default:
      return pick<PanelLayout::kF32>(rows);
  }
}

}  // namespace octavo

#endif
