#include <bit>

#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

namespace octavo {
namespace {

inline __m256i magnitude(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

inline int largest(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

// Sums of columns 0 and 1, and of 2 and 3, of each 4: what vpmaddubsw adds into a 16-bit lane.
struct Lanes {
  int low;
  int high;

  int total() const { return low + high; }
  // Minus both, as the halves of 32 bits.
  int32_t negative() const {
    const auto half = [](int v) { return static_cast<uint32_t>(-v) & 0xffffu; };
    return static_cast<int32_t>(half(low) | half(high) << 16);
  }
};

inline Lanes sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return {_mm_cvtsi128_si32(s), _mm_extract_epi32(s, 2)};
}

// Sixteen 32-bit integers in -127..127 as bytes.
inline void store_bytes(__m256i a, __m256i b, int8_t* q) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
}

struct GroupLanes {
  Lanes first;  // of the first 16
  Lanes all;
};

// Stores q, scale and sum; the sums come back for the kernels' own terms.
inline GroupLanes quantize(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  __m256 v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm256_loadu_ps(x + i * 8);
  // |x| as bits is never negative as an integer, so the signed maximum orders it.
  const __m256i m = _mm256_max_epi32(_mm256_max_epi32(magnitude(v[0]), magnitude(v[1])),
                                     _mm256_max_epi32(magnitude(v[2]), magnitude(v[3])));
  const float amax = std::bit_cast<float>(largest(m));
  const float inverse = inverse_scale(amax);
  __m256i i32[4] = {};
  if (inverse != 0.0f) {
    for (int i = 0; i < 4; ++i) {
      i32[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    }
  }
  store_bytes(i32[0], i32[1], q);
  store_bytes(i32[2], i32[3], q + 16);
  const Lanes first = sum_lanes(_mm256_add_epi32(i32[0], i32[1]));
  const Lanes last = sum_lanes(_mm256_add_epi32(i32[2], i32[3]));
  const Lanes all{first.low + last.low, first.high + last.high};
  set_terms(amax, first.total(), all.total(), terms);
  return {first, all};
}

}  // namespace

void quantize_group_avx2(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  quantize(x, q, terms);
}

void quantize_group_lanes(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  const GroupLanes lanes = quantize(x, q, terms);
  terms->neg_sum = lanes.all.negative();
  terms->neg_sum_first = lanes.first.negative();
}

}  // namespace octavo

#endif
