// The machine's own limits: multiply-adds in registers, and reading.
#include "kernels/kernels_avx2.h"

#if defined(__AVX2__)

namespace octavo {

// vpmaddubsw and a 16-bit addition: what the 4-bit kernel does between its rarer widenings.
int64_t int8_loop_avx2(int64_t loops) {
  constexpr int kChains = 12;
  __m256i acc[kChains];
  const __m256i a = _mm256_set1_epi32(static_cast<int>(loops));
  __m256i b = a;
#pragma GCC unroll 12
  for (int j = 0; j < kChains; ++j) acc[j] = _mm256_setzero_si256();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
      asm volatile("" : "+x"(b));  // a new value for all the compiler knows
      acc[j] = _mm256_add_epi16(acc[j], _mm256_maddubs_epi16(a, b));
      asm volatile("" : "+x"(acc[j]));
    }
  }
  return loops * kChains * 64;
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
