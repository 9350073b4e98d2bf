// Attention with vdpbf16ps: two products a lane, accumulated in float. The cache holds pairs:
// K as [head_dim / 2][32 tokens][2], V as [16 token pairs][head_dim][2]. Included by
// kernels_avx512.cpp after kernels.inl; used only where the processor has AVX512-BF16.

namespace octavo {
namespace {

// 32 floats become 16 pairs; `out` may be `x` or lie before it.
inline void narrow32(const float* x, float* out) {
  const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  _mm512_storeu_si512(out, (__m512i)both);
}

// e^x for x in [-87, 0], else clamped, for a result that becomes bf16, which is off by up to 2e-3:
// 2^n (1 + f (c1 + f (c2 + f (c3 + f c4)))), n + f = x log2(e), |f| <= 1/2, is off by 3e-6 (a
// minimax fit). n is rounded by adding 1.5 * 2^23, whose lowest bits it becomes.
inline __m512 exp_to_bf16(__m512 x) {
  const __m512 log2e = _mm512_set1_ps(1.44269504f), round = _mm512_set1_ps(12582912.0f);
  x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
  const __m512 shifted = _mm512_fmadd_ps(x, log2e, round);
  const __m512 f = _mm512_fmsub_ps(x, log2e, _mm512_sub_ps(shifted, round));
  __m512 p = _mm512_set1_ps(9.582852992e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.590642474e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.2402409861f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931241934f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
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
  struct Ready {
    explicit Ready(int) {}
  };
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
  static Vec weight(Vec x) { return {exp_to_bf16(x.v)}; }
  // The pairs of all blocks lie one after the other: behind what is still to come.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t*, int64_t, Range) {
    const __m512bh both = _mm512_cvtne2ps_pbh(p[1].v, p[0].v);
    _mm512_storeu_si512(row + b * kBlockTokens / 2, (__m512i)both);
  }
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    pair_values_rows<kMicroRows>(rows, p, d, blocks, span, out);
  }
};

// One head of one token: a pair of each line of keys, and half of the pairs of a row of values.
void kv_write_pairs(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at) {
  const int64_t d = padded_head_dim(head_dim);
  alignas(64) float wide[kMaxHeadDim];
  std::fill(std::copy(k, k + head_dim, wide), wide + d, 0.0f);
  for (int64_t i = 0; i < d; i += 32) narrow32(wide + i, wide + i / 2);
  uint32_t* kt = reinterpret_cast<uint32_t*>(block);
  const uint32_t* pairs = reinterpret_cast<const uint32_t*>(wide);
  for (int64_t i = 0; i < d / 2; ++i) kt[i * kBlockTokens + at] = pairs[i];
  std::fill(std::copy(v, v + head_dim, wide), wide + d, 0.0f);
  for (int64_t i = 0; i < d; i += 32) narrow32(wide + i, wide + i / 2);
  uint16_t* vt = reinterpret_cast<uint16_t*>(kt + d / 2 * kBlockTokens) + (at / 2) * 2 * d + at % 2;
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(wide);
  for (int64_t i = 0; i < d; ++i) vt[2 * i] = halves[i];
}

// x[r][c] of 16 by 16 words becomes x[c][r].
inline void transpose16(__m512i (&x)[16]) {
  __m512i y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i low = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    const __m512i high = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    y[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    y[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    y[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
  std::copy(y, y + 16, x);
}

// 32 floats at `at` as 16 pairs; those from `end` on are zeros.
inline __m512i pairs_of(const float* row, int64_t at, int64_t end) {
  const auto part = [&](int64_t from) {
    const int64_t left = std::clamp<int64_t>(end - from, 0, 16);
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), row + from);
  };
  return (__m512i)_mm512_cvtne2ps_pbh(part(at + 16), part(at));
}

// One head of 16 tokens from `at`, a multiple of 16, on: whole lines.
void kv_write_lines(const KvRows& rows, uint8_t* block, int64_t head_dim, int at) {
  const int64_t d = padded_head_dim(head_dim);
  uint32_t* kt = reinterpret_cast<uint32_t*>(block) + at;
  uint32_t* vt = reinterpret_cast<uint32_t*>(block) + d / 2 * (kBlockTokens + at);
  const __m512i low = _mm512_set1_epi32(0xffff);
  for (int64_t i = 0; i < d; i += 32) {
    __m512i x[16];
    for (int t = 0; t < 16; ++t) x[t] = pairs_of(rows.k + t * rows.ldk, i, head_dim);
    transpose16(x);
    for (int c = 0; c < 16; ++c) _mm512_storeu_si512(kt + (i / 2 + c) * kBlockTokens, x[c]);
    for (int t = 0; t < 16; t += 2) {
      // Words 2 j and 2 j + 1 of the two rows become pairs j and 16 + j of a line of pairs.
      const __m512i a = pairs_of(rows.v + t * rows.ldv, i, head_dim);
      const __m512i b = pairs_of(rows.v + (t + 1) * rows.ldv, i, head_dim);
      const __m512i even = _mm512_or_si512(_mm512_and_si512(a, low), _mm512_slli_epi32(b, 16));
      const __m512i odd = _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_andnot_si512(low, b));
      const __m512i first =
          _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
      uint32_t* line = vt + t / 2 * d + i;
      _mm512_storeu_si512(line, _mm512_permutex2var_epi32(even, first, odd));
      _mm512_storeu_si512(line + 16, _mm512_permutex2var_epi32(even, second, odd));
    }
  }
}

void kv_write_paired(const KvRows& rows, uint8_t* block, int64_t head_dim, int at, KvType type) {
  if (type != KvType::kBF16) return kv_write(rows, block, head_dim, at, type);
  for (int t = 0; t < rows.num_tokens;) {
    const float *k = rows.k + t * rows.ldk, *v = rows.v + t * rows.ldv;
    if ((at + t) % 16 == 0 && rows.num_tokens - t >= 16) {
      kv_write_lines({k, v, rows.ldk, rows.ldv, 16}, block, head_dim, at + t);
      t += 16;
    } else {
      kv_write_pairs(k, v, block, head_dim, at + t);
      ++t;
    }
  }
}

// Attention on a bf16 cache by Math, which may need the thread to get ready for it; others as ever.
template <class Math>
void attend_by(const AttentionTask& task, KvType type, float* scratch) {
  if (type != KvType::kBF16 || task.latent_dim > 0) return attend(task, type, scratch);
  [[maybe_unused]] const typename Math::Ready ready(task.num_tokens * task.group);
  Attention<Math>(task, scratch).run();
}
template <class Math>
void attend_chunk_by(const AttentionTask& task, KvType type, float* scratch, int chunk,
                     float* partial) {
  if (type != KvType::kBF16 || task.latent_dim > 0) {
    return attend_chunk(task, type, scratch, chunk, partial);
  }
  [[maybe_unused]] const typename Math::Ready ready(task.num_tokens * task.group);
  Attention<Math>(task, scratch).run_chunk(chunk, partial);
}

}  // namespace
}  // namespace octavo
