#include <bit>
#include <limits>

#include "kernels/kernels_avx512.h"

#if defined(__AVX512F__)

namespace octavo {
namespace {

using Terms = QuantizedRows::Terms;

inline __m512i magnitude(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

void store_bytes(__m512i a, __m512i b, int8_t* q) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(b));
}

// Lane i of the result: all lanes of v[i] reduced by `op`, which takes two registers of any size.
template <class Op>
inline __m128i reduce_four(const __m512i (&v)[4], Op op) {
  const __m512i a = op(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b = op(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i c = op(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m256i d = op(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
  return op(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

struct Largest {
  __m512i operator()(__m512i a, __m512i b) const { return _mm512_max_epu32(a, b); }
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epu32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_max_epu32(a, b); }
};
struct Sum {
  __m512i operator()(__m512i a, __m512i b) const { return _mm512_add_epi32(a, b); }
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_add_epi32(a, b); }
};

// set_terms for four groups: lane i of each argument is group i's.
inline void store_terms(__m128 scale, __m128i first, __m128i sum, const GroupPlace (&groups)[4]) {
  const __m128 scaled = _mm_mul_ps(scale, _mm_cvtepi32_ps(sum));
  const __m128i zero = _mm_setzero_si128();
  __m128 rows[4] = {scale, scaled, _mm_castsi128_ps(_mm_sub_epi32(zero, sum)),
                    _mm_castsi128_ps(_mm_sub_epi32(zero, first))};
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_ps(reinterpret_cast<float*>(groups[i].terms), rows[i]);
  }
}

}  // namespace

void quantize_group_avx512(const float* x, int8_t* q, Terms* terms) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + 16);
  const __m512i largest = _mm512_max_epu32(magnitude(low), magnitude(high));
  const float amax = std::bit_cast<float>(_mm512_reduce_max_epu32(largest));
  const float inverse = inverse_scale(amax);
  __m512i a = _mm512_setzero_si512();
  __m512i b = _mm512_setzero_si512();
  if (inverse != 0.0f) {
    const __m512 factor = _mm512_set1_ps(inverse);
    a = _mm512_cvtps_epi32(_mm512_mul_ps(low, factor));
    b = _mm512_cvtps_epi32(_mm512_mul_ps(high, factor));
  }
  store_bytes(a, b, q);
  const int first = _mm512_reduce_add_epi32(a);
  set_terms(amax, first, _mm512_reduce_add_epi32(_mm512_add_epi32(a, b)), terms);
}

// It is the latency of a group's sums that takes the time: four of them take as long as one.
void quantize_four_avx512(const GroupPlace (&groups)[4]) {
  __m512 low[4];
  __m512 high[4];
  __m512i largest[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    low[i] = _mm512_loadu_ps(groups[i].x);
    high[i] = _mm512_loadu_ps(groups[i].x + 16);
    largest[i] = _mm512_max_epu32(magnitude(low[i]), magnitude(high[i]));
  }
  const __m128 amax = _mm_castsi128_ps(reduce_four(largest, Largest()));
  const __m128 most = _mm_set1_ps(std::numeric_limits<float>::max());
  const __mmask8 usable = _mm_cmp_ps_mask(amax, _mm_set1_ps(1e-30f), _CMP_GT_OQ) &
                          _mm_cmp_ps_mask(amax, most, _CMP_LE_OQ);
  if (usable != 0xf) {  // zeros, or what is not finite
    for (const GroupPlace& group : groups) quantize_group_avx512(group.x, group.q, group.terms);
    return;
  }
  const __m512 inverse = _mm512_castps128_ps512(_mm_div_ps(_mm_set1_ps(127.0f), amax));
  __m512i firsts[4];
  __m512i sums[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 factor = _mm512_permutexvar_ps(_mm512_set1_epi32(i), inverse);
    firsts[i] = _mm512_cvtps_epi32(_mm512_mul_ps(low[i], factor));
    const __m512i rest = _mm512_cvtps_epi32(_mm512_mul_ps(high[i], factor));
    sums[i] = _mm512_add_epi32(firsts[i], rest);
    store_bytes(firsts[i], rest, groups[i].q);
  }
  store_terms(_mm_mul_ps(amax, _mm_set1_ps(1.0f / 127.0f)), reduce_four(firsts, Sum()),
              reduce_four(sums, Sum()), groups);
}

}  // namespace octavo

#endif
