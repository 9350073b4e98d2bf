// Attention with vdpbf16ps: two products a lane, accumulated in float. The cache holds pairs:
// K as [head_dim / 2][32 tokens][2], V as [16 token pairs][head_dim][2]. Included by
// kernels_avx512.cpp after kernels.inl; used only where the processor has AVX512-BF16.

namespace octavo {
namespace {

inline uint32_t pair_of(const float* x) {
  return static_cast<uint32_t>(float_to_bf16(x[0]).bits) |
         static_cast<uint32_t>(float_to_bf16(x[1]).bits) << 16;
}

// 32 floats become 16 pairs; `out` may be `x` or lie before it.
inline void narrow32(const float* x, float* out) {
  const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  _mm512_storeu_si512(out, (__m512i)both);
}

// c[r][0:32] = sum over pairs k of a[r][k] . b[k][0:32]. The block at `ahead` is asked for line by
// line: a core has a few dozen lines under way at most, and waits if it asks for more.
template <int R>
inline void pair_scores(const uint32_t* a, int64_t lda, const uint32_t* b, int pairs, float* c,
                        const uint8_t* ahead) {
  __m512 acc[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int k = 0; k < pairs; ++k, b += kBlockTokens, ahead += 128) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + 16);
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + 64, 0, 2);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * lda + k]));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(c + r * kScoresStride, acc[r][0]);
    _mm512_storeu_ps(c + r * kScoresStride + 16, acc[r][1]);
  }
}

template <int R>
inline void pair_scores_rows(int rows, const uint32_t* a, int64_t lda, const uint32_t* b, int pairs,
                             float* c, const uint8_t* ahead) {
  if constexpr (R > 0) {
    if (rows == R) return pair_scores<R>(a, lda, b, pairs, c, ahead);
    pair_scores_rows<R - 1>(rows, a, lda, b, pairs, c, ahead);
  }
}

// Sums of 16 * N columns over the keys of a chunk, kept in registers all along.
template <int R, int N>
struct PairSums {
  __m512 acc[R][N];

  inline __attribute__((always_inline)) void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) acc[r][j] = _mm512_setzero_ps();
    }
  }
  // Key pair k of the rows' probabilities, with the values of these two keys; `keep` masks them.
  inline __attribute__((always_inline)) void add(const float* p, int k, const uint32_t* v,
                                                 __m512i keep) {
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(p) + k;
    __m512bh b[N];
#pragma GCC unroll 16
    for (int j = 0; j < N; ++j) {
      b[j] = (__m512bh)_mm512_and_si512(_mm512_loadu_si512(v + 16 * j), keep);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(pairs[r * kScoresStride]));
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, b[j]);
    }
  }
  inline __attribute__((always_inline)) void store(float* out, int64_t ldo) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) _mm512_storeu_ps(out + r * ldo + 16 * j, acc[r][j]);
    }
  }
};

// out[r][c:c + 16 * N] = sum over the keys in span of p[r] . V. Of an odd number of keys the last
// pair counts its first half only: the other half may never have been written.
template <int R, int N>
inline void pair_values(const float* p, int64_t d, const ChunkBlocks& blocks, Range span, int64_t c,
                        float* out) {
  constexpr int kPairs = kBlockTokens / 2;
  const __m512i all = _mm512_set1_epi32(-1), first = _mm512_set1_epi32(0xffff);
  const int end = span.end / 2;  // whole pairs
  const int64_t passes = d / (16 * N);
  PairSums<R, N> sums;
  sums.clear();
  for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
    const uint32_t* v = reinterpret_cast<const uint32_t*>(blocks.at[b]) + d / 2 * kBlockTokens + c;
    // The pieces ahead in order, as many lines at a time as are read here.
    const int64_t turn = c / (16 * N) * blocks.count + b;
    const uint8_t* piece = blocks.ahead[blocks.count + turn / passes];
    const uint8_t* ahead = piece == nullptr ? reinterpret_cast<const uint8_t*>(v)
                                            : piece + turn % passes * (kPairs * N * 64);
    int k = std::max(0, span.begin / 2 - b * kPairs);
    const int stop = std::min(kPairs, end - b * kPairs);
    for (; k < stop; ++k) {
#pragma GCC unroll 16
      for (int j = 0; j < N; ++j) __builtin_prefetch(ahead + (k * N + j) * 64, 0, 2);
      sums.add(p, b * kPairs + k, v + k * d, all);
    }
    if (k < kPairs && span.end % 2 != 0) sums.add(p, b * kPairs + k, v + k * d, first);
  }
  sums.store(out + c, d);
}

// As many columns at a time as fill the registers.
template <int R>
inline void pair_values_rows(int rows, const float* p, int64_t d, const ChunkBlocks& blocks,
                             Range span, float* out) {
  if constexpr (R > 0) {
    if (rows != R) return pair_values_rows<R - 1>(rows, p, d, blocks, span, out);
    constexpr int kWide = R <= 6 ? 4 : 2;
    if (d % (16 * kWide) == 0) {
      for (int64_t c = 0; c < d; c += 16 * kWide) {
        pair_values<R, kWide>(p, d, blocks, span, c, out);
      }
    } else {
      for (int64_t c = 0; c < d; c += 32) pair_values<R, 2>(p, d, blocks, span, c, out);
    }
  }
}

struct PairedMath {
  using Query = float;  // a row's first head_dim / 2 words hold pairs
  struct Ready {};
  static constexpr int64_t half_bytes(int64_t d) { return kBlockTokens * d * 2; }

  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    float scaled[kMaxHeadDim];
    scale_rows(q, scaled, head_dim, scale);
    std::fill(scaled + head_dim, scaled + d, 0.0f);
    for (int64_t i = 0; i < d; i += 32) narrow32(scaled + i, out + i / 2);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t head_dim, const uint8_t* block,
                     float* out, const uint8_t* ahead) {
    pair_scores_rows<kMicroRows>(
        rows, reinterpret_cast<const uint32_t*>(q), d, reinterpret_cast<const uint32_t*>(block),
        static_cast<int>((head_dim + 1) / 2), out, ahead != nullptr ? ahead : block);
  }
  // The pairs of all blocks lie one after the other.
  static void weigh(float* p, const ChunkBlocks& blocks, int64_t, Range) {
    for (int b = 0; b < blocks.count; ++b) {
      narrow32(p + b * kBlockTokens, p + b * kBlockTokens / 2);
    }
  }
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    pair_values_rows<kMicroRows>(rows, p, d, blocks, span, out);
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

// Attention on a bf16 cache by Math, which may need the thread to get ready for it; others as ever.
template <class Math>
void attend_by(const AttentionTask& task, KvType type, float* scratch) {
  if (type != KvType::kBF16 || task.latent_dim > 0) return attend(task, type, scratch);
  [[maybe_unused]] const typename Math::Ready ready;
  Attention<Math>(task, scratch).run();
}
template <class Math>
void attend_chunk_by(const AttentionTask& task, KvType type, float* scratch, int chunk,
                     float* partial) {
  if (type != KvType::kBF16 || task.latent_dim > 0) {
    return attend_chunk(task, type, scratch, chunk, partial);
  }
  [[maybe_unused]] const typename Math::Ready ready;
  Attention<Math>(task, scratch).run_chunk(chunk, partial);
}

}  // namespace
}  // namespace octavo
