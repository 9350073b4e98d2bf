// The vector type of kernels compiled for AVX2: 8 floats. Same interface as simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "runtime/simd_bf16.h"

namespace octavo::simd {

struct Vec {
  static constexpr int kWidth = 8;
  __m256 v;
};

inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline Vec load(const uint16_t* p) {  // IEEE half
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline Vec load(const Bf16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
inline Vec load(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.v);
}
inline void store(uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vec zero() {
  return {_mm256_setzero_ps()};
}
inline Vec set1(float x) {
  return {_mm256_set1_ps(x)};
}
inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n for integral n in [-126, 127].
inline Vec scale2(Vec x, Vec n) {
  __m256i e =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_mul_ps(x.v, _mm256_castsi256_ps(e))};
}
// Lanes outside [begin, end), both in [0, 8], become `fill`.
inline Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i keep = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                           _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
  return {_mm256_blendv_ps(_mm256_set1_ps(fill), a.v, _mm256_castsi256_ps(keep))};
}
// Of p[0], p[1], ...: each twice.
inline Vec load_twice(const float* p) {
  const __m256i each = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return {_mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), each)};
}
// Even and odd lanes change places.
inline Vec swap_pairs(Vec a) {
  return {_mm256_permute_ps(a.v, 0xb1)};
}
// a - b in even lanes, a + b in odd ones.
inline Vec sub_add(Vec a, Vec b) {
  return {_mm256_addsub_ps(a.v, b.v)};
}
inline float reduce_add(Vec a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float reduce_max(Vec a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

}  // namespace octavo::simd
