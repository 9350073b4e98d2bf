// Float products with NEON: one row by a whole panel, or up to 3 rows by half a panel, so that four
// sums each fit the registers.
#include "kernels/format.h"
#include "kernels/kernels_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)

namespace octavo {
namespace {

// Weights of column k + J (k a multiple of 4), rows 4v..4v+3.
template <PanelLayout L, int J>
inline __attribute__((always_inline)) float32x4_t load_column(const uint8_t* panel, int64_t k,
                                                              int v) {
  if constexpr (L == PanelLayout::kF32) {
    return vreinterpretq_f32_u8(vld1q_u8(panel + (k + J) * 64 + v * 16));
  } else if constexpr (L == PanelLayout::kF16) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(panel + (k + J) * 32 + v * 8)));
  } else if constexpr (L == PanelLayout::kE5M2) {
    const uint8_t* group = e5m2_group(panel, k);
    uint32_t four;
    __builtin_memcpy(&four, group + e5m2_codes(k + J) + v * 4, 4);
    const uint16x4_t bits = vget_low_u16(vshll_n_u8(vcreate_u8(four), 8));
    const float32x4_t scale = vreinterpretq_f32_u8(vld1q_u8(group + v * 16));
    return vmulq_f32(vcvt_f32_f16(vreinterpret_f16_u16(bits)), scale);
  } else {
    const uint32x4_t pair = vreinterpretq_u32_u8(vld1q_u8(panel + (k + (J & ~1)) * 32 + v * 16));
    return vreinterpretq_f32_u32(J % 2 == 0 ? vshlq_n_u32(pair, 16)
                                            : vandq_u32(pair, vdupq_n_u32(0xffff0000u)));
  }
}

// T activation rows by rows 4v.. of the panel, V vectors of them.
template <PanelLayout L, int T, int V>
struct Part {
  const FloatTileArgs& a;
  int v;
  float32x4_t c[4][V][T];

  template <int J>
  inline __attribute__((always_inline)) void column(int64_t k) {
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      const float32x4_t w = load_column<L, J>(a.panel, k, v + i);
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        c[J][i][t] = vfmaq_n_f32(c[J][i][t], w, a.x[t * a.ldx + k + J]);
      }
    }
  }

  inline __attribute__((always_inline)) void run(float (*rows)[kPanelRows]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) {
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) c[j][i][t] = vdupq_n_f32(0.0f);
      }
    }
    int64_t k = 0;
    for (; k + 4 <= a.k; k += 4) {
      column<0>(k);
      column<1>(k);
      column<2>(k);
      column<3>(k);
    }
    if (k < a.k) column<0>(k);
    if (k + 1 < a.k) column<1>(k);
    if (k + 2 < a.k) column<2>(k);
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        vst1q_f32(rows[t] + (v + i) * 4,
                  vaddq_f32(vaddq_f32(c[0][i][t], c[1][i][t]), vaddq_f32(c[2][i][t], c[3][i][t])));
      }
    }
  }
};

template <PanelLayout L, int T>
void tile(const FloatTileArgs& a) {
  constexpr int kVectors = T == 1 ? 4 : 2;
  float rows[T][kPanelRows];
  for (int v = 0; v < 4; v += kVectors) Part<L, T, kVectors>{a, v, {}}.run(rows);
  for (int t = 0; t < T; ++t) {
    __builtin_memcpy(a.out + t * a.ldo, rows[t], static_cast<size_t>(a.valid) * sizeof(float));
  }
}

template <PanelLayout L>
FloatTileKernel pick(int rows) {
  static_assert(kFloatRowsNeon == 3);
  return rows == 1 ? tile<L, 1> : rows == 2 ? tile<L, 2> : tile<L, 3>;
}

}  // namespace

FloatTileKernel float_kernel_neon(PanelLayout layout, int rows) {
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
