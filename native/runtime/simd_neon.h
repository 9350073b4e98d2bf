// The vector type of kernels compiled for NEON: 8 floats in two registers. Same interface as
// simd_avx2.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "runtime/simd_bf16.h"

namespace octavo::simd {

struct Vec {
  static constexpr int kWidth = 8;
  float32x4_t low;
  float32x4_t high;
};

inline Vec load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
inline Vec load(const uint16_t* p) {  // IEEE half
  const float16x8_t half = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
}
inline Vec load(const int8_t* p) {
  const int16x8_t wide = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}
inline Vec load(const Bf16* p) {
  const uint16x8_t half = vld1q_u16(reinterpret_cast<const uint16_t*>(p));
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(half)), 16)),
          vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(half), 16))};
}
inline void store(float* p, Vec a) {
  vst1q_f32(p, a.low);
  vst1q_f32(p + 4, a.high);
}
inline void store(uint16_t* p, Vec a) {
  const float16x8_t half = vcvt_high_f16_f32(vcvt_f16_f32(a.low), a.high);
  vst1q_u16(p, vreinterpretq_u16_f16(half));
}
inline Vec set1(float x) {
  return {vdupq_n_f32(x), vdupq_n_f32(x)};
}
inline Vec zero() {
  return set1(0.0f);
}
inline Vec add(Vec a, Vec b) {
  return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}
inline Vec sub(Vec a, Vec b) {
  return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}
inline Vec mul(Vec a, Vec b) {
  return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}
inline Vec div(Vec a, Vec b) {
  return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
// If a is NaN the result is b, as on x86.
inline Vec max(Vec a, Vec b) {
  return {vmaxnmq_f32(a.low, b.low), vmaxnmq_f32(a.high, b.high)};
}
inline Vec min(Vec a, Vec b) {
  return {vminnmq_f32(a.low, b.low), vminnmq_f32(a.high, b.high)};
}
inline Vec round(Vec a) {
  return {vrndnq_f32(a.low), vrndnq_f32(a.high)};
}
// x * 2^n for integral n in [-126, 127].
inline float32x4_t scale2(float32x4_t x, float32x4_t n) {
  const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  return vmulq_f32(x, vreinterpretq_f32_s32(power));
}
inline Vec scale2(Vec x, Vec n) {
  return {scale2(x.low, n.low), scale2(x.high, n.high)};
}
// Lanes outside [begin, end), both in [0, 8], become `fill`.
inline Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const int32_t lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const int32x4_t first = vdupq_n_s32(begin), last = vdupq_n_s32(end);
  const auto kept = [&](float32x4_t x, int32x4_t lane) {
    const uint32x4_t keep = vandq_u32(vcgeq_s32(lane, first), vcltq_s32(lane, last));
    return vbslq_f32(keep, x, vdupq_n_f32(fill));
  };
  return {kept(a.low, vld1q_s32(lanes)), kept(a.high, vld1q_s32(lanes + 4))};
}
// Of p[0], p[1], ...: each twice.
inline Vec load_twice(const float* p) {
  const float32x4_t x = vld1q_f32(p);
  return {vzip1q_f32(x, x), vzip2q_f32(x, x)};
}
// Even and odd lanes change places.
inline Vec swap_pairs(Vec a) {
  return {vrev64q_f32(a.low), vrev64q_f32(a.high)};
}
// a - b in even lanes, a + b in odd ones.
inline Vec sub_add(Vec a, Vec b) {
  return {vtrn2q_f32(vrev64q_f32(vsubq_f32(a.low, b.low)), vaddq_f32(a.low, b.low)),
          vtrn2q_f32(vrev64q_f32(vsubq_f32(a.high, b.high)), vaddq_f32(a.high, b.high))};
}
inline float reduce_add(Vec a) {
  const float32x4_t four = vaddq_f32(a.low, a.high);
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
inline float reduce_max(Vec a) {
  return vmaxnmvq_f32(vmaxnmq_f32(a.low, a.high));
}

}  // namespace octavo::simd
