// Attention's products in float arithmetic: K as [head_dim][32 tokens], V as [32 tokens][head_dim].
// Included by kernels.inl.

namespace octavo {
namespace {

// c[r][0:32] = (more ? c[r][0:32] : 0) + sum over k in [k0, k1) of a[r][k] * b[k][0:32].
template <int R, class T>
inline void product32(const float* a, int64_t lda, const T* b, int64_t ldb, int k0, int k1,
                      float* c, int64_t ldc, bool more) {
  Vec acc[R][kCols];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < kCols; ++j) {
      acc[r][j] = more ? load(c + r * ldc + j * kW) : zero();
    }
  }
  for (int k = k0; k < k1; ++k) {
    Vec row[kCols];
#pragma GCC unroll 16
    for (int j = 0; j < kCols; ++j) row[j] = load(b + k * ldb + j * kW);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec x = set1(a[r * lda + k]);
#pragma GCC unroll 16
      for (int j = 0; j < kCols; ++j) acc[r][j] = fma(x, row[j], acc[r][j]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < kCols; ++j) store(c + r * ldc + j * kW, acc[r][j]);
  }
}

constexpr int kMicroRows = kW == 16 ? 12 : 3;  // accumulators fill the register file

template <int R, class T>
inline void product32_rows(int rows, const float* a, int64_t lda, const T* b, int64_t ldb, int k0,
                           int k1, float* c, int64_t ldc, bool more) {
  if constexpr (R > 0) {
    if (rows == R) return product32<R>(a, lda, b, ldb, k0, k1, c, ldc, more);
    product32_rows<R - 1>(rows, a, lda, b, ldb, k0, k1, c, ldc, more);
  }
}

// Keys of a chunk or of a block, as offsets from its first.
struct Range {
  int begin;
  int end;
  Range from(int key) const { return {begin - key, end - key}; }
  bool operator==(const Range&) const = default;
};

// The blocks of one chunk for one KV head, and what to ask memory for meanwhile: the pieces
// ahead[i] of kv_head_bytes / 2 each, one for each block in `scores` and one in `values`; null:
// nothing.
struct ChunkBlocks {
  int count;
  const uint8_t* at[kChunkBlocks];
  const uint8_t* ahead[2 * kChunkBlocks];
};

constexpr int kChunkTokens = kChunkBlocks * kBlockTokens;
constexpr int64_t kScoresStride = kChunkTokens + 16;      // rows lie in different sets of the cache
constexpr int64_t kNarrowStride = kChunkTokens / 2 + 16;  // the same of 16-bit numbers

// Numbers of n keys: those outside `seen` become `fill`.
inline void keep(float* x, int n, Range seen, float fill) {
  if (seen.begin > 0) std::fill(x, x + std::min(seen.begin, n), fill);
  if (seen.end < n) std::fill(x + std::max(seen.end, 0), x + n, fill);
}

// The same of kW keys in a vector.
inline Vec keep_lanes(Vec x, Range seen, float fill) {
  return simd::keep_lanes(x, std::clamp(seen.begin, 0, kW), std::clamp(seen.end, 0, kW), fill);
}

// Always inline: see prefetch_bytes.
__attribute__((always_inline)) inline void prefetch(const uint8_t* p, int64_t bytes) {
  if (p == nullptr) return;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

inline void store_block(const Vec (&p)[kCols], float* x) {
#pragma GCC unroll 4
  for (int j = 0; j < kCols; ++j) store(x + j * kW, p[j]);
}

// Probabilities as most take them: exact, in the place of the scores.
struct ExactWeights {
  // Of a key, by how far its score is below the largest: e^x for x <= 0.
  static Vec weight(Vec x) { return exp_vec(x); }
  // Lays a row's probabilities of the keys of its block b where `values` looks for them.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t*, int64_t, Range) {
    store_block(p, row + b * kBlockTokens);
  }
};

template <class T>
struct PlainMath : ExactWeights {
  using Query = float;  // [rows][padded head_dim]

  static constexpr int64_t half_bytes(int64_t d) {
    return kBlockTokens * d * static_cast<int64_t>(sizeof(T));
  }

  static void load_query(const float* q, int64_t head_dim, int64_t, float scale, Query* out) {
    scale_rows(q, out, head_dim, scale);
  }
  // out[r][32] = q . K of a block. `ahead`: half_bytes to ask for meanwhile, or null.
  static void scores(int rows, const Query* q, int64_t d, int64_t head_dim, const uint8_t* block,
                     float* out, const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    product32_rows<kMicroRows>(rows, q, d, reinterpret_cast<const T*>(block), kBlockTokens, 0,
                               static_cast<int>(head_dim), out, kScoresStride, false);
  }
  // out = p V over the keys in span.
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      prefetch(blocks.ahead[blocks.count + b], half_bytes(d));
      const Range keys = span.from(b * kBlockTokens);
      const int begin = std::max(keys.begin, 0), end = std::min(keys.end, kBlockTokens);
      const T* v = reinterpret_cast<const T*>(blocks.at[b]) + d * kBlockTokens;
      for (int64_t c = 0; c < d; c += kBlockTokens) {
        product32_rows<kMicroRows>(rows, p + b * kBlockTokens, kScoresStride, v + c, d, begin, end,
                                   out + c, d, keys.begin < 0);
      }
    }
  }
};

}  // namespace
}  // namespace octavo
