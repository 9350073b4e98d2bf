// Quantized products with sdot: up to 6 rows of activations by one panel.
//
// sdot multiplies signed by signed bytes into 32 bits. Elements of 4 to 6 bits are the same number
// either way; those of 8 bits lose their offset of 128 in the sign bit. All sums are exact.
#include "kernels/kernels_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include <array>
#include <utility>

#include "kernels/format.h"

namespace octavo {
namespace {

inline __attribute__((always_inline)) float32x4_t load_halves(const uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

inline __attribute__((always_inline)) uint16x4_t load_4(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, 4);
  return vget_low_u16(vmovl_u8(vcreate_u8(four)));
}

inline __attribute__((always_inline)) float32x4_t load_unsigned(const uint8_t* p) {
  return vcvtq_f32_u32(vmovl_u16(load_4(p)));
}

inline __attribute__((always_inline)) int32x4_t load_signed(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, 4);
  return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
}

// Column quad J of rows 4v..4v+3 of a group: [4 rows][4 columns].
template <SourceType S, int J>
inline __attribute__((always_inline)) int8x16_t load_quad(const uint8_t* group, int v) {
  using F = Format<S>;
  if constexpr (F::kBytesOnly) {
    static_assert(F::kZeroPoint == 128);
    const uint8x16_t line = vld1q_u8(group + J * 64 + v * 16);
    return vreinterpretq_s8_u8(veorq_u8(line, vdupq_n_u8(128)));
  } else {
    const uint8x16_t line = vld1q_u8(group + J / 2 * 64 + v * 16);
    uint8x16_t element;
    if constexpr (J % 2 == 0) {
      element = vandq_u8(line, vdupq_n_u8(15));
    } else {
      element = vshrq_n_u8(line, 4);
    }
    if constexpr (F::kPlanes > 0) {
      constexpr int kQuads = 8 / F::kPlanes;
      constexpr int kShift = 4 - J % kQuads * F::kPlanes;  // to the left
      uint8x16_t high = vld1q_u8(group + 256 + J / kQuads * 64 + v * 16);
      if constexpr (kShift > 0) high = vshlq_n_u8(high, kShift);
      if constexpr (kShift < 0) high = vshrq_n_u8(high, -kShift);
      const uint8x16_t wanted = vdupq_n_u8(((1 << F::kPlanes) - 1) << 4);
      element = vorrq_u8(element, vandq_u8(high, wanted));
    }
    return vreinterpretq_s8_u8(element);
  }
}

// Scale of rows 4v..4v+3: of the group, or (kHalves) of the block of 256.
template <SourceType S>
inline __attribute__((always_inline)) float32x4_t load_scale(const uint8_t* head,
                                                             const uint8_t* group, int v) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kHalves) {
    return load_halves(head + v * 8);
  } else if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    return vmulq_f32(load_halves(head + v * 8), load_unsigned(tail + v * 4));
  } else {
    return load_halves(tail + v * 8);
  }
}

// kHalves: the whole-numbered scales of half `half` of the group.
template <SourceType S>
inline __attribute__((always_inline)) int32x4_t load_half_scale(const uint8_t* group, int half,
                                                                int v) {
  return load_signed(group + Format<S>::kElementBytes + half * 16 + v * 4);
}

// The min that is added, of rows 4v..4v+3.
template <SourceType S>
inline __attribute__((always_inline)) float32x4_t load_min(const uint8_t* head,
                                                           const uint8_t* group, int v) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    return vnegq_f32(vmulq_f32(load_halves(head + 32 + v * 8), load_unsigned(tail + 16 + v * 4)));
  } else {
    return load_halves(tail + 32 + v * 8);
  }
}

template <SourceType S, int T>
struct Tile {
  using F = Format<S>;
  using Terms = QuantizedRows::Terms;
  static constexpr int kVectors = 4;  // of 4 rows, in a panel

  static inline __attribute__((always_inline)) int32x4_t start(const Terms& terms, int step) {
    if constexpr (F::kBytesOnly || F::kZeroBits < 0) {
      return vdupq_n_s32(0);
    } else {
      int neg = terms.neg_sum;
      if (F::kHalves) neg = step == 0 ? terms.neg_sum_first : neg - terms.neg_sum_first;
      return vdupq_n_s32(neg * F::kZeroPoint);
    }
  }

  // acc[i][t] += the products of column quad J, which is quad J % 4 of q[t].
  template <int J>
  static inline __attribute__((always_inline)) void add_quad(const uint8_t* group, int v,
                                                             const int8x16_t (&q)[T],
                                                             int32x4_t (&acc)[2][T]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      // Loading twice is free; keeping a value while there are no registers left is not.
      asm volatile("" ::: "memory");
      const int8x16_t w = load_quad<S, J>(group, v + i);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) acc[i][t] = vdotq_laneq_s32(acc[i][t], w, q[t], J % 4);
    }
  }

  // The products of columns 16 P..16 P + 15 of the group.
  template <int P>
  static inline __attribute__((always_inline)) void add_part(const uint8_t* group, const uint8_t* q,
                                                             int v, int32x4_t (&acc)[2][T]) {
    int8x16_t part[T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      part[t] = vreinterpretq_s8_u8(vld1q_u8(q + t * kGroup + P * 16));
    }
    add_quad<4 * P>(group, v, part, acc);
    add_quad<4 * P + 1>(group, v, part, acc);
    add_quad<4 * P + 2>(group, v, part, acc);
    add_quad<4 * P + 3>(group, v, part, acc);
  }

  // Adds a group of rows 4v..4v+7 of the panel.
  static inline __attribute__((always_inline)) void step(const uint8_t* head, const uint8_t* group,
                                                         const uint8_t* q, const Terms* terms,
                                                         int v, float32x4_t (*c)[T]) {
    int32x4_t acc[2][T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) acc[0][t] = acc[1][t] = start(terms[t], 0);
    add_part<0>(group, q, v, acc);
    add_part<1>(group, q, v, acc);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      asm volatile("" ::: "memory");
      const float32x4_t scale = load_scale<S>(head, group, v + i);
      float32x4_t min = vdupq_n_f32(0.0f);
      if constexpr (F::kMin) min = load_min<S>(head, group, v + i);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const float32x4_t both = vmulq_f32(scale, vdupq_n_f32(terms[t].scale));
        c[v + i][t] = vfmaq_f32(c[v + i][t], vcvtq_f32_s32(acc[i][t]), both);
        if constexpr (F::kMin) {
          c[v + i][t] = vfmaq_f32(c[v + i][t], min, vdupq_n_f32(terms[t].sum));
        }
      }
    }
  }

  // kHalves: adds a group of rows 4v..4v+7 to the sums s of its block.
  static inline __attribute__((always_inline)) void step_halves(const uint8_t* group,
                                                                const uint8_t* q,
                                                                const Terms* terms, int v,
                                                                float32x4_t (*s)[T]) {
    int32x4_t first[2][T];
    int32x4_t second[2][T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      first[0][t] = first[1][t] = start(terms[t], 0);
      second[0][t] = second[1][t] = start(terms[t], 1);
    }
    add_part<0>(group, q, v, first);
    add_part<1>(group, q, v, second);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int32x4_t scale_first = load_half_scale<S>(group, 0, v + i);
      const int32x4_t scale_second = load_half_scale<S>(group, 1, v + i);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const int32x4_t x =
            vmlaq_s32(vmulq_s32(first[i][t], scale_first), second[i][t], scale_second);
        s[v + i][t] = vfmaq_f32(s[v + i][t], vcvtq_f32_s32(x), vdupq_n_f32(terms[t].scale));
      }
    }
  }

  static inline __attribute__((always_inline)) void store(const float32x4_t (*c)[T],
                                                          const QuantTileArgs& a) {
    for (int t = 0; t < T; ++t) {
      float rows[kPanelRows];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) vst1q_f32(rows + v * 4, c[v][t]);
      __builtin_memcpy(a.out + t * a.ldo, rows, static_cast<size_t>(a.valid) * sizeof(float));
    }
  }

  static void run(const QuantTileArgs& a) {
    float32x4_t c[kVectors][T];
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < T; ++t) c[v][t] = vdupq_n_f32(0.0f);
    }
    const uint8_t* q = a.q;
    const uint8_t* terms_at = a.terms;
    const uint8_t* group = a.panel;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      const uint8_t* head = group;
      group += F::kHead;
      float32x4_t s[kVectors][T];
      for (int v = 0; v < kVectors; ++v) {
        for (int t = 0; t < T; ++t) s[v][t] = vdupq_n_f32(0.0f);
      }
      for (int g = 0; g < F::kSuper; ++g) {
        const auto* terms = reinterpret_cast<const Terms*>(terms_at);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; v += 2) {
          if constexpr (F::kHalves) {
            step_halves(group, q, terms, v, s);
          } else {
            step(head, group, q, terms, v, c);
          }
        }
        group += kGroupBytes<S>;
        q += a.group_stride;
        terms_at += a.group_stride;
      }
      if constexpr (F::kHalves) {
        for (int v = 0; v < kVectors; ++v) {
          const float32x4_t scale = load_scale<S>(head, group, v);
          for (int t = 0; t < T; ++t) c[v][t] = vfmaq_f32(c[v][t], s[v][t], scale);
        }
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

const KernelTable& neon_kernels() {
  static const KernelTable table{.isa = "neon",
                                 .quant_rows = kMaxRows,
                                 .float_rows = kFloatRowsNeon,
                                 .quant = quant_kernel,
                                 .floats = float_kernel_neon,
                                 .quantize_group = quantize_group_neon,
                                 .int8_loop = int8_loop_neon,
                                 .read_loop = read_loop_neon,
                                 .f32_loop = f32_loop_neon};
  return table;
}

}  // namespace octavo

#endif
