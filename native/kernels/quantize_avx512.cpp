#include <bit>

#include "kernels/kernels_avx512.h"

#if defined(__AVX512F__)

namespace octavo {

void quantize_group_avx512(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  const __m512 lo = _mm512_loadu_ps(x);
  const __m512 hi = _mm512_loadu_ps(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(lo), magnitude),
                                           _mm512_and_si512(_mm512_castps_si512(hi), magnitude));
  const float amax = std::bit_cast<float>(_mm512_reduce_max_epu32(largest));
  const float inverse = inverse_scale(amax);
  __m512i a = _mm512_setzero_si512();
  __m512i b = _mm512_setzero_si512();
  if (inverse != 0.0f) {
    const __m512 factor = _mm512_set1_ps(inverse);
    a = _mm512_cvtps_epi32(_mm512_mul_ps(lo, factor));
    b = _mm512_cvtps_epi32(_mm512_mul_ps(hi, factor));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(b));
  const int first = _mm512_reduce_add_epi32(a);
  set_terms(amax, first, _mm512_reduce_add_epi32(_mm512_add_epi32(a, b)), terms);
}

}  // namespace octavo

#endif
