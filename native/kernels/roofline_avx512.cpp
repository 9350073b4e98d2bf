// The machine's own limits: multiply-adds in registers, and reading.
#include "kernels/kernels_avx512.h"

#if defined(__AVX512VNNI__)

namespace octavo {

int64_t int8_loop_avx512(int64_t loops, int) {
  constexpr int kChains = 24;
  __m512i acc[kChains];
  const __m512i a = _mm512_set1_epi32(static_cast<int>(loops));
#pragma GCC unroll 24
  for (int j = 0; j < kChains; ++j) acc[j] = _mm512_setzero_si512();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kChains; ++j) {
      acc[j] = _mm512_dpbusd_epi32(acc[j], a, a);
      asm volatile("" : "+v"(acc[j]));  // keep it in its register, and keep it
    }
  }
  return loops * kChains * 128;
}

int64_t f32_loop_avx512(int64_t loops) {
  constexpr int kChains = 24;
  __m512 acc[kChains];
  const __m512 a = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 24
  for (int j = 0; j < kChains; ++j) acc[j] = _mm512_setzero_ps();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kChains; ++j) {
      acc[j] = _mm512_fmadd_ps(a, a, acc[j]);
      asm volatile("" : "+v"(acc[j]));
    }
  }
  return loops * kChains * 32;
}

int64_t bf16_loop_avx512(int64_t loops) {
  constexpr int kChains = 24;
  __m512 acc[kChains];
  // Pairs of the bf16 0x3a83, about 1e-3.
  const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3a83));
#pragma GCC unroll 24
  for (int j = 0; j < kChains; ++j) acc[j] = _mm512_setzero_ps();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kChains; ++j) {
      acc[j] = _mm512_dpbf16_ps(acc[j], a, a);
      asm volatile("" : "+v"(acc[j]));
    }
  }
  return loops * kChains * 64;
}

namespace {

// Asks memory for lines `kAhead` bytes ahead.
template <size_t kAhead>
int64_t read_ahead(const uint8_t* data, size_t bytes) {
  __m512i sum[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) sum[j] = _mm512_setzero_si512();
  for (size_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i + j * 64 + kAhead), _MM_HINT_T0);
      sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(data + i + j * 64));
    }
  }
#pragma GCC unroll 8
  for (int j = 1; j < 8; ++j) sum[0] = _mm512_xor_si512(sum[0], sum[j]);
  return _mm512_reduce_add_epi64(sum[0]);
}

}  // namespace

int64_t read_loop_avx512(const uint8_t* data, size_t bytes) {
  return read_ahead<4096>(data, bytes);
}

int64_t read_near_loop_avx512(const uint8_t* data, size_t bytes) {
  return read_ahead<1344>(data, bytes);
}

}  // namespace octavo

#endif
