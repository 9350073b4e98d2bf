// Products of e4m3 floats with NEON: digits of 7 bits, which are signed bytes whatever the sign of
// the weight, are looked up and multiplied as all bytes are.
#include "kernels/kernels_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include <array>
#include <utility>

#include "kernels/format.h"
#include "kernels/wide.h"

namespace octavo {
namespace {

using Terms = QuantizedRows::Terms;

struct Digits {
  alignas(16) uint8_t of[3][128];
  constexpr Digits() : of{} {
    for (int d = 0; d < 3; ++d) {
      for (int i = 0; i < 128; ++i) {
        of[d][i] = static_cast<uint8_t>(e4m3_magnitude(i) >> (d * 7) & 127);
      }
    }
  }
};
constexpr Digits kDigits{};

inline __attribute__((always_inline)) uint8x16x4_t load_table(const uint8_t* p) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}

// Digit D of 16 codes, with their signs.
template <int D>
inline __attribute__((always_inline)) int8x16_t digit(uint8x16_t codes) {
  const uint8x16_t magnitude = vandq_u8(codes, vdupq_n_u8(127));
  const uint8x16_t low = vqtbl4q_u8(load_table(kDigits.of[D]), magnitude);
  const uint8x16_t both =
      vqtbx4q_u8(low, load_table(kDigits.of[D] + 64), vsubq_u8(magnitude, vdupq_n_u8(64)));
  const int8x16_t sign = vshrq_n_s8(vreinterpretq_s8_u8(codes), 7);
  return vsubq_s8(veorq_s8(vreinterpretq_s8_u8(both), sign), sign);
}

template <SourceType S, int T>
struct Tile {
  using F = Format<S>;

  // sum[d][t] += the products of column quad J of rows 4v..4v+3, which is quad J % 4 of q[t].
  template <int J>
  static inline __attribute__((always_inline)) void add_quad(const uint8_t* group, int v,
                                                             const int8x16_t (&q)[T],
                                                             int32x4_t (&sum)[3][T]) {
    const uint8x16_t codes = vld1q_u8(group + J * 64 + v * 16);
    const int8x16_t digits[3] = {digit<0>(codes), digit<1>(codes), digit<2>(codes)};
#pragma GCC unroll 3
    for (int d = 0; d < 3; ++d) {
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) sum[d][t] = vdotq_laneq_s32(sum[d][t], digits[d], q[t], J % 4);
    }
  }

  template <int P>
  static inline __attribute__((always_inline)) void add_part(const uint8_t* group, const uint8_t* q,
                                                             int v, int32x4_t (&sum)[3][T]) {
    int8x16_t part[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      part[t] = vreinterpretq_s8_u8(vld1q_u8(q + t * kGroup + P * 16));
    }
    add_quad<4 * P>(group, v, part, sum);
    add_quad<4 * P + 1>(group, v, part, sum);
    add_quad<4 * P + 2>(group, v, part, sum);
    add_quad<4 * P + 3>(group, v, part, sum);
  }

  static void run(const QuantTileArgs& a) {
    float32x4_t c[4][T];
    for (int v = 0; v < 4; ++v) {
      for (int t = 0; t < T; ++t) c[v][t] = vdupq_n_f32(0.0f);
    }
    const uint8_t *q = a.q, *terms_at = a.terms, *group = a.panel, *head = a.panel;
    for (int64_t g = 0; g < a.groups; ++g) {
      if (g % F::kSuper == 0) {
        head = group;
        group += F::kHead;
      }
      const auto* terms = reinterpret_cast<const Terms*>(terms_at);
      for (int v = 0; v < 4; ++v) {
        int32x4_t sum[3][T];
        for (int t = 0; t < T; ++t) sum[0][t] = sum[1][t] = sum[2][t] = vdupq_n_s32(0);
        add_part<0>(group, q, v, sum);
        add_part<1>(group, q, v, sum);
        const float32x4_t scale = vreinterpretq_f32_u8(vld1q_u8(head + v * 16));
        for (int t = 0; t < T; ++t) {
          const int32x4_t high = vaddq_s32(sum[1][t], vshlq_n_s32(sum[2][t], 7));
          const int32x4_t total = vaddq_s32(sum[0][t], vshlq_n_s32(high, 7));
          const float32x4_t both = vmulq_f32(scale, vdupq_n_f32(terms[t].scale));
          c[v][t] = vfmaq_f32(c[v][t], vcvtq_f32_s32(total), both);
        }
      }
      group += kGroupBytes<S>;
      q += a.group_stride;
      terms_at += a.group_stride;
    }
    for (int t = 0; t < T; ++t) {
      float rows[kPanelRows];
      for (int v = 0; v < 4; ++v) vst1q_f32(rows + v * 4, c[v][t]);
      __builtin_memcpy(a.out + t * a.ldo, rows, static_cast<size_t>(a.valid) * sizeof(float));
    }
  }
};

// More rows than the registers hold are taken in two turns.
template <SourceType S, int T>
void rows_of(const QuantTileArgs& a) {
  if constexpr (T > 4) {
    Tile<S, T / 2>::run(a);
    QuantTileArgs rest = a;
    rest.q += T / 2 * kGroup;
    rest.terms += T / 2 * sizeof(Terms);
    rest.out += T / 2 * a.ldo;
    Tile<S, T - T / 2>::run(rest);
  } else {
    Tile<S, T>::run(a);
  }
}

template <SourceType S>
QuantTileKernel pick(int rows) {
  static constexpr QuantTileKernel kKernels[6] = {rows_of<S, 1>, rows_of<S, 2>, rows_of<S, 3>,
                                                  rows_of<S, 4>, rows_of<S, 5>, rows_of<S, 6>};
  return kKernels[rows - 1];
}

}  // namespace

QuantTileKernel wide_kernel_neon(SourceType source, int rows) {
  return source == SourceType::kE4M3 ? pick<SourceType::kE4M3>(rows)
                                     : pick<SourceType::kE4M3_32>(rows);
}

}  // namespace octavo

#endif
