// The vector type of kernels compiled for AVX-512: 16 floats. Same interface as simd_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "runtime/simd_bf16.h"

namespace octavo::simd {

struct Vec {
  static constexpr int kWidth = 16;
  __m512 v;
};

inline Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline Vec load(const uint16_t* p) {  // IEEE half
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec load(const Bf16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline Vec load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline void store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.v);
}
inline void store(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vec zero() {
  return {_mm512_setzero_ps()};
}
inline Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
inline Vec add(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n for integral n.
inline Vec scale2(Vec x, Vec n) {
  return {_mm512_scalef_ps(x.v, n.v)};
}
// Lanes outside [begin, end), both in [0, 16], become `fill`.
inline Vec keep_lanes(Vec a, int begin, int end, float fill) {
  const uint32_t keep = ((1u << end) - 1) & ~((1u << begin) - 1);
  return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), static_cast<__mmask16>(keep), a.v)};
}
// Of p[0], p[1], ...: each twice.
inline Vec load_twice(const float* p) {
  const __m512i each = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {_mm512_permutexvar_ps(each, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}
// Even and odd lanes change places.
inline Vec swap_pairs(Vec a) {
  return {_mm512_permute_ps(a.v, 0xb1)};
}
// a - b in even lanes, a + b in odd ones.
inline Vec sub_add(Vec a, Vec b) {
  return {_mm512_mask_sub_ps(_mm512_add_ps(a.v, b.v), 0x5555, a.v, b.v)};
}
inline float reduce_add(Vec a) {
  return _mm512_reduce_add_ps(a.v);
}
inline float reduce_max(Vec a) {
  return _mm512_reduce_max_ps(a.v);
}

}  // namespace octavo::simd
