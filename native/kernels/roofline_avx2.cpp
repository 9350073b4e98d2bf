// The machine's own limits: multiply-adds in registers, and reading.
#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

namespace octavo {

namespace {

// Exact dot products of bytes as the kernels must do them: vpmaddubsw over 8 column quads, kPasses
// times (bytes go nibble by nibble), its results added in 16 bits for kQuads of them at a time,
// then widened by vpmaddwd and added in 32 bits.
template <int kQuads, int kPasses>
int64_t dot_loop(int64_t loops) {
  constexpr int kChains = 6;
  __m256i acc[kChains];
  const __m256i a = _mm256_set1_epi32(static_cast<int>(loops));
  __m256i b = a;
#pragma GCC unroll 6
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_si256();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 4
    for (int widening = 0; widening < 8 * kPasses / kQuads; ++widening) {
      __m256i sum[kChains];
#pragma GCC unroll 8
      for (int j = 0; j < kQuads; ++j) {
#pragma GCC unroll 6
        for (int c = 0; c < kChains; ++c) {
          asm volatile("" : "+x"(b));  // a new value for all the compiler knows
          const __m256i product = _mm256_maddubs_epi16(a, b);
          sum[c] = j == 0 ? product : _mm256_add_epi16(sum[c], product);
          asm volatile("" : "+x"(sum[c]));
        }
      }
#pragma GCC unroll 6
      for (int c = 0; c < kChains; ++c) {
        acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(sum[c], b));
        asm volatile("" : "+x"(acc[c]));
      }
    }
  }
  return loops * kChains * 8 * 64;
}

}  // namespace

int64_t int8_loop_avx2(int64_t loops, int bits) {
  constexpr int64_t kShorter = 8;  // one of these loops does the work of so many of others
  if (bits == 8) return dot_loop<8, 2>(loops / kShorter);
  if (bits == 6) return dot_loop<4, 1>(loops / kShorter);
  return dot_loop<8, 1>(loops / kShorter);
}

int64_t f32_loop_avx2(int64_t loops) {
  constexpr int kChains = 12;
  __m256 acc[kChains];
  const __m256 a = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) acc[j] = _mm256_setzero_ps();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      acc[j] = _mm256_fmadd_ps(a, a, acc[j]);
      asm volatile("" : "+x"(acc[j]));
    }
  }
  return loops * kChains * 16;
}

int64_t read_loop_avx2(const uint8_t* data, size_t bytes) {
  __m256i sum[16];
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) sum[j] = _mm256_setzero_si256();
  for (size_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 16
    for (size_t j = 0; j < 16; ++j) {
      if (j % 2 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(data + i + j * 32 + 4096), _MM_HINT_T0);
      }
      const auto* p = reinterpret_cast<const __m256i*>(data + i + j * 32);
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(p));
    }
  }
  for (int j = 1; j < 16; ++j) sum[0] = _mm256_xor_si256(sum[0], sum[j]);
  return _mm256_extract_epi64(sum[0], 0);
}

}  // namespace octavo

#endif
