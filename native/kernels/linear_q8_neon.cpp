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

// Column quad J of rows 4v..4v+3 of a group: [4 rows][4 columns]. Codes become their numbers.
template <SourceType S, int J>
inline __attribute__((always_inline)) int8x16_t load_quad(const uint8_t* head, const uint8_t* group,
                                                          int v) {
  using F = Format<S>;
  if constexpr (F::kBytesOnly) {
    static_assert(F::kZeroPoint == 128);
    const uint8x16_t line = vld1q_u8(group + J * 64 + v * 16);
    return vreinterpretq_s8_u8(veorq_u8(line, vdupq_n_u8(128)));
  } else {
    constexpr int kBits = F::kLineBits;
    constexpr int kLineQuads = 8 / kBits;
    constexpr int kAt = J % kLineQuads * kBits;
    uint8x16_t element = vld1q_u8(group + J / kLineQuads * 64 + v * 16);
    if constexpr (kAt > 0) element = vshrq_n_u8(element, kAt);
    if constexpr (kAt + kBits < 8) element = vandq_u8(element, vdupq_n_u8((1 << kBits) - 1));
    if constexpr (F::kCodes) {
      const uint8x16_t table = vld1q_u8(code_table<S>(head));
      element = vqtbl1q_u8(vsubq_u8(table, vdupq_n_u8(F::kZeroPoint)), element);
    }
    if constexpr (F::kPlanes > 0) {
      constexpr int kQuads = 8 / F::kPlanes;
      constexpr int kShift = kBits - J % kQuads * F::kPlanes;  // to the left
      uint8x16_t high = vld1q_u8(group + F::kLines * 64 + J / kQuads * 64 + v * 16);
      if constexpr (kShift > 0) high = vshlq_n_u8(high, kShift);
      if constexpr (kShift < 0) high = vshrq_n_u8(high, -kShift);
      const uint8x16_t wanted = vdupq_n_u8(((1 << F::kPlanes) - 1) << kBits);
      element = vorrq_u8(element, vandq_u8(high, wanted));
    }
    return vreinterpretq_s8_u8(element);
  }
}

// Scale of rows 4v..4v+3: of the group, or (kHalves) of the block of 256.
template <SourceType S>
inline __attribute__((always_inline)) float32x4_t load_scale(const uint8_t* head,
                                                             const uint8_t* group, int v) {
  using F = Format<S>;
  const uint8_t* tail = group + F::kElementBytes;
  if constexpr (F::kFloatHead) {
    return vreinterpretq_f32_u8(vld1q_u8(head + v * 16));
  } else if constexpr (F::kHalves || F::kScales == Scales::kBlock ||
                       F::kScales == Scales::kZeroBlock) {
    return load_halves(head + v * 8);
  } else if constexpr (F::kScales == Scales::kSuperMin) {
    return vmulq_f32(load_halves(head + v * 8), load_unsigned(tail + v * 4));
  } else if constexpr (F::kScales == Scales::kSuper) {
    return vmulq_f32(load_halves(head + v * 8), vcvtq_f32_s32(load_signed(tail + v * 4)));
  } else if constexpr (F::kScales == Scales::kPower) {
    // As power_scale: 2^-128 and 2^-127 by shifting a bit, from there on by counting exponents.
    const uint32x4_t e = vmovl_u16(load_4(tail + v * 4));
    const uint32x4_t two = vdupq_n_u32(2);
    const int32x4_t least = vreinterpretq_s32_u32(vminq_u32(e, two));
    const uint32x4_t above = vshlq_n_u32(vsubq_u32(vmaxq_u32(e, two), two), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vshlq_u32(vdupq_n_u32(0x200000), least), above));
  } else {
    return load_halves(tail + v * 8);
  }
}

// kHalvesFloat: the scales of half `half` of the group, as small_e4m3.
inline __attribute__((always_inline)) float32x4_t load_small_e4m3(const uint8_t* p) {
  const uint16x4_t moved = vand_u16(vshl_n_u16(load_4(p), 7), vdup_n_u16(0x3fff));
  return vcvt_f32_f16(vreinterpret_f16_u16(moved));
}

// kHalves: the whole-numbered scales of half `half` of the group.
template <SourceType S>
inline __attribute__((always_inline)) int32x4_t load_half_scale(const uint8_t* group, int half,
                                                                int v) {
  const uint8_t* bytes = group + Format<S>::kElementBytes + half * 16 + v * 4;
  if constexpr (Format<S>::kHalvesMin) {
    const uint32x4_t both = vmovl_u16(load_4(bytes));
    return vreinterpretq_s32_u32(vandq_u32(both, vdupq_n_u32(15)));
  } else {
    return load_signed(bytes);
  }
}

// kHalvesMin: the whole-numbered mins.
template <SourceType S>
inline __attribute__((always_inline)) int32x4_t load_half_min(const uint8_t* group, int half,
                                                              int v) {
  const uint8_t* bytes = group + Format<S>::kElementBytes + half * 16 + v * 4;
  return vreinterpretq_s32_u32(vshrq_n_u32(vmovl_u16(load_4(bytes)), 4));
}

// The min that is added, of rows 4v..4v+3.
template <SourceType S>
inline __attribute__((always_inline)) float32x4_t load_min(const uint8_t* head,
                                                           const uint8_t* group, int v) {
  const uint8_t* tail = group + Format<S>::kElementBytes;
  if constexpr (Format<S>::kScales == Scales::kSuperMin) {
    return vnegq_f32(vmulq_f32(load_halves(head + 32 + v * 8), load_unsigned(tail + 16 + v * 4)));
  } else if constexpr (Format<S>::kScales == Scales::kZero) {
    return vnegq_f32(vmulq_f32(load_halves(tail + v * 8), load_unsigned(tail + 32 + v * 4)));
  } else if constexpr (Format<S>::kScales == Scales::kZeroBlock) {
    const int16x4_t z = vreinterpret_s16_u8(vld1_u8(head + 32 + v * 8));
    return vnegq_f32(vmulq_f32(load_halves(head + v * 8), vcvtq_f32_s32(vmovl_s16(z))));
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
    if constexpr (F::kBytesOnly || F::kCodes || F::kZeroBits < 0) {
      return vdupq_n_s32(0);
    } else {
      int neg = terms.neg_sum;
      if (F::kHalves) neg = step == 0 ? terms.neg_sum_first : neg - terms.neg_sum_first;
      return vdupq_n_s32(neg * F::kZeroPoint);
    }
  }

  // acc[i][t] += the products of column quad J, which is quad J % 4 of q[t].
  template <int J>
  static inline __attribute__((always_inline)) void add_quad(const uint8_t* head,
                                                             const uint8_t* group, int v,
                                                             const int8x16_t (&q)[T],
                                                             int32x4_t (&acc)[2][T]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      // Loading twice is free; keeping a value while there are no registers left is not.
      asm volatile("" ::: "memory");
      const int8x16_t w = load_quad<S, J>(head, group, v + i);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) acc[i][t] = vdotq_laneq_s32(acc[i][t], w, q[t], J % 4);
    }
  }

  // The products of columns 16 P..16 P + 15 of the group.
  template <int P>
  static inline __attribute__((always_inline)) void add_part(const uint8_t* head,
                                                             const uint8_t* group, const uint8_t* q,
                                                             int v, int32x4_t (&acc)[2][T]) {
    int8x16_t part[T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      part[t] = vreinterpretq_s8_u8(vld1q_u8(q + t * kGroup + P * 16));
    }
    add_quad<4 * P>(head, group, v, part, acc);
    add_quad<4 * P + 1>(head, group, v, part, acc);
    add_quad<4 * P + 2>(head, group, v, part, acc);
    add_quad<4 * P + 3>(head, group, v, part, acc);
  }

  // Adds a group of rows 4v..4v+7 of the panel.
  static inline __attribute__((always_inline)) void step(const uint8_t* head, const uint8_t* group,
                                                         const uint8_t* q, const Terms* terms,
                                                         int v, float32x4_t (*c)[T]) {
    int32x4_t acc[2][T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) acc[0][t] = acc[1][t] = start(terms[t], 0);
    add_part<0>(head, group, q, v, acc);
    add_part<1>(head, group, q, v, acc);
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
  static inline __attribute__((always_inline)) void step_halves(const uint8_t* head,
                                                                const uint8_t* group,
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
    add_part<0>(head, group, q, v, first);
    add_part<1>(head, group, q, v, second);
    if constexpr (F::kHalvesFloat) {
      for (int i = 0; i < 2; ++i) {
        const uint8_t* scales = group + F::kElementBytes + (v + i) * 4;
        const float32x4_t scale_first = load_small_e4m3(scales);
        const float32x4_t scale_second = load_small_e4m3(scales + 16);
        for (int t = 0; t < T; ++t) {
          const float32x4_t x = vmulq_f32(vcvtq_f32_s32(first[i][t]), scale_first);
          const float32x4_t both = vfmaq_f32(x, vcvtq_f32_s32(second[i][t]), scale_second);
          s[v + i][t] = vfmaq_f32(s[v + i][t], both, vdupq_n_f32(terms[t].scale));
        }
      }
      return;
    }
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

  // kHalvesMin: adds a group's mins of rows 4v..4v+7 to the sums m of its block.
  static inline __attribute__((always_inline)) void step_mins(const uint8_t* group,
                                                              const Terms* terms, int v,
                                                              float32x4_t (*m)[T]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int32x4_t first = load_half_min<S>(group, 0, v + i);
      const int32x4_t second = load_half_min<S>(group, 1, v + i);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const int neg = terms[t].neg_sum_first;
        const int32x4_t x = vmlaq_n_s32(vmulq_n_s32(first, neg), second, terms[t].neg_sum - neg);
        m[v + i][t] = vfmaq_f32(m[v + i][t], vcvtq_f32_s32(x), vdupq_n_f32(terms[t].scale));
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
      float32x4_t m[kVectors][T];
      for (int v = 0; v < kVectors; ++v) {
        for (int t = 0; t < T; ++t) s[v][t] = m[v][t] = vdupq_n_f32(0.0f);
      }
      const int64_t count = groups_left<F>(a.groups - super);
      for (int64_t g = 0; g < count; ++g) {
        const auto* terms = reinterpret_cast<const Terms*>(terms_at);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; v += 2) {
          if constexpr (F::kHalves) {
            step_halves(head, group, q, terms, v, s);
            if constexpr (F::kHalvesMin) step_mins(group, terms, v, m);
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
          if constexpr (F::kHalvesMin) {
            const float32x4_t min_scale = load_halves(head + 32 + v * 8);
            for (int t = 0; t < T; ++t) c[v][t] = vfmaq_f32(c[v][t], m[v][t], min_scale);
          }
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
    if constexpr (kIsWide<S>) {
      kernel = wide_kernel_neon(source, rows);
    } else {
      kernel = pick<S>(rows, std::make_integer_sequence<int, kMaxRows>{});
    }
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
