// Attention with vdpbf16ps: two products a lane, accumulated in float. The cache holds pairs:
// K as [head_dim / 2][32 tokens][2], V as [16 token pairs][head_dim][2]. Included by
// kernels_avx512.cpp after kernels.inl; used only where the processor has AVX512-BF16.

namespace octavo {
namespace {

inline uint32_t pair_of(const float* x) {
  return static_cast<uint32_t>(float_to_bf16(x[0]).bits) |
         static_cast<uint32_t>(float_to_bf16(x[1]).bits) << 16;
}

// c[r][0:32] = (init ? init[r] * c[r] : 0) + sum over pairs k of a[r][k] . b[k][0:32]. The last
// pair counts its first half only if `odd`: the other half may never have been written. What lies
// `ahead` bytes further on is asked for line by line.
template <int R>
inline void product32_pairs(const uint32_t* a, int64_t lda, const uint32_t* b, int64_t ldb, int k0,
                            int k1, bool odd, float* c, int64_t ldc, const float* init,
                            int64_t ahead) {
  __m512 acc[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < 2; ++j) {
      acc[r][j] =
          init ? _mm512_mul_ps(_mm512_set1_ps(init[r]), _mm512_loadu_ps(c + r * ldc + 16 * j))
               : _mm512_setzero_ps();
    }
  }
  const int full = odd ? k1 - 1 : k1;
  for (int k = k0; k < full; ++k) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + k * ldb);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + k * ldb + 16);
    const char* later = reinterpret_cast<const char*>(b + k * ldb) + ahead;
    __builtin_prefetch(later, 0, 2);
    __builtin_prefetch(later + 64, 0, 2);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * lda + k]));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
    }
  }
  if (odd) {
    const __m512i low = _mm512_set1_epi32(0xffff);
    const __m512bh b0 = (__m512bh)_mm512_and_si512(low, _mm512_loadu_si512(b + full * ldb));
    const __m512bh b1 = (__m512bh)_mm512_and_si512(low, _mm512_loadu_si512(b + full * ldb + 16));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * lda + full]));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < 2; ++j) _mm512_storeu_ps(c + r * ldc + 16 * j, acc[r][j]);
  }
}

template <int R>
inline void product32_pair_rows(int rows, const uint32_t* a, int64_t lda, const uint32_t* b,
                                int64_t ldb, int k0, int k1, bool odd, float* c, int64_t ldc,
                                const float* init, int64_t ahead) {
  if constexpr (R > 0) {
    if (rows == R) return product32_pairs<R>(a, lda, b, ldb, k0, k1, odd, c, ldc, init, ahead);
    product32_pair_rows<R - 1>(rows, a, lda, b, ldb, k0, k1, odd, c, ldc, init, ahead);
  }
}

struct PairedMath {
  using Query = float;                       // a row's first head_dim / 2 words hold pairs
  static constexpr bool kPrefetches = true;  // the block that lies `ahead` bytes further on
  static constexpr int64_t block_bytes(int64_t d) { return 2 * kBlockTokens * d * 2; }

  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    float scaled[kMaxHeadDim];
    scale_rows(q, scaled, head_dim, scale);
    std::fill(scaled + head_dim, scaled + d, 0.0f);
    uint32_t* pairs = reinterpret_cast<uint32_t*>(out);
    for (int64_t i = 0; i < d / 2; ++i) pairs[i] = pair_of(scaled + 2 * i);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t head_dim, const uint8_t* block,
                     float* out, int64_t ahead) {
    product32_pair_rows<kMicroRows>(rows, reinterpret_cast<const uint32_t*>(q), d,
                                    reinterpret_cast<const uint32_t*>(block), kBlockTokens, 0,
                                    static_cast<int>((head_dim + 1) / 2), false, out, kBlockTokens,
                                    nullptr, ahead);
  }
  // 32 floats become 16 pairs in the first half of the row.
  static void weigh(float* p, const uint8_t*, int64_t, Range) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p));
    _mm512_storeu_si512(p, (__m512i)both);
  }
  static void values(int rows, const float* p, int64_t d, const uint8_t* block, Range span,
                     float* out, const float* fade, int64_t ahead) {
    const uint32_t* v = reinterpret_cast<const uint32_t*>(block) + d / 2 * kBlockTokens;
    const int k0 = span.begin / 2, k1 = (span.end + 1) / 2;
    for (int64_t c = 0; c < d; c += kBlockTokens) {
      product32_pair_rows<kMicroRows>(rows, reinterpret_cast<const uint32_t*>(p), kBlockTokens,
                                      v + c, d, k0, k1, span.end % 2 != 0, out + c, d, fade, ahead);
    }
  }
};

void kv_write_paired(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at,
                     KvType type) {
  if (type != KvType::kBF16) return kv_write(k, v, block, head_dim, at, type);
  const int64_t d = padded_head_dim(head_dim);
  float wide[kMaxHeadDim] = {};
  std::copy(k, k + head_dim, wide);
  uint32_t* kt = reinterpret_cast<uint32_t*>(block);
  for (int64_t i = 0; i < (head_dim + 1) / 2; ++i) {
    kt[i * kBlockTokens + at] = pair_of(wide + 2 * i);
  }
  std::copy(v, v + head_dim, wide);
  Bf16* vt = reinterpret_cast<Bf16*>(kt + d / 2 * kBlockTokens) + (at / 2) * 2 * d + at % 2;
  for (int64_t i = 0; i < d; ++i) vt[2 * i] = float_to_bf16(wide[i]);
}

void attend_paired(const AttentionTask& task, KvType type, float* scratch) {
  if (type != KvType::kBF16) return attend(task, type, scratch);
  Attention<PairedMath>(task, scratch).run();
}
void attend_chunk_paired(const AttentionTask& task, KvType type, float* scratch, int chunk,
                         float* partial) {
  if (type != KvType::kBF16) return attend_chunk(task, type, scratch, chunk, partial);
  Attention<PairedMath>(task, scratch).run_chunk(chunk, partial);
}

}  // namespace
}  // namespace octavo
