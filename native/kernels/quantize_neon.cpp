#include <bit>

#include "kernels/kernels_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)

namespace octavo {
namespace {

inline uint32x4_t magnitude(float32x4_t x) {
  return vreinterpretq_u32_f32(vabsq_f32(x));
}

// Sixteen 32-bit integers in -127..127 as bytes.
inline int8x16_t narrow(const int32x4_t* v) {
  const int16x8_t low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
  return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

}  // namespace

void quantize_group_neon(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  float32x4_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(x + i * 4);
  uint32x4_t m = magnitude(v[0]);  // as bits, which order as the values do; NaN above infinity
  for (int i = 1; i < 8; ++i) m = vmaxq_u32(m, magnitude(v[i]));
  const float amax = std::bit_cast<float>(vmaxvq_u32(m));
  const float inverse = inverse_scale(amax);
  int32x4_t i32[8];
  for (int i = 0; i < 8; ++i) {
    i32[i] = inverse == 0.0f ? vdupq_n_s32(0) : vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
  }
  const int8x16_t first = narrow(i32);
  const int8x16_t last = narrow(i32 + 4);
  vst1q_s8(q, first);
  vst1q_s8(q + 16, last);
  const int sum_first = vaddlvq_s8(first);
  set_terms(amax, sum_first, sum_first + vaddlvq_s8(last), terms);
}

}  // namespace octavo

#endif
