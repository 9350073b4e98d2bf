// The machine's own limits: multiply-adds in registers, and reading.
#include "kernels/kernels_neon.h"

#if defined(__ARM_FEATURE_DOTPROD)

namespace octavo {

int64_t int8_loop_neon(int64_t loops, int) {
  constexpr int kChains = 16;
  int32x4_t acc[kChains];
  const int8x16_t a = vdupq_n_s8(static_cast<int8_t>(loops));
  int8x16_t b = a;
#pragma GCC unroll 16
  for (int j = 0; j < kChains; ++j) acc[j] = vdupq_n_s32(0);
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) {
      asm volatile("" : "+w"(b));  // a new value for all the compiler knows
      acc[j] = vdotq_s32(acc[j], a, b);
      asm volatile("" : "+w"(acc[j]));
    }
  }
  return loops * kChains * 32;
}

int64_t f32_loop_neon(int64_t loops) {
  constexpr int kChains = 16;
  float32x4_t acc[kChains];
  const float32x4_t a = vdupq_n_f32(1e-3f);
#pragma GCC unroll 16
  for (int j = 0; j < kChains; ++j) acc[j] = vdupq_n_f32(0.0f);
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) {
      acc[j] = vfmaq_f32(acc[j], a, a);
      asm volatile("" : "+w"(acc[j]));
    }
  }
  return loops * kChains * 8;
}

int64_t read_loop_neon(const uint8_t* data, size_t bytes) {
  uint8x16_t sum[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) sum[j] = vdupq_n_u8(0);
  for (size_t i = 0; i < bytes; i += 128) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) sum[j] = veorq_u8(sum[j], vld1q_u8(data + i + j * 16));
  }
  for (int j = 1; j < 8; ++j) sum[0] = veorq_u8(sum[0], sum[j]);
  const uint64x2_t both = vreinterpretq_u64_u8(sum[0]);
  return static_cast<int64_t>(vgetq_lane_u64(both, 0) ^ vgetq_lane_u64(both, 1));
}

}  // namespace octavo

#endif
