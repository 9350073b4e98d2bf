// Multi-head latent attention: what a token left in the cache is one row, its latent and then its
// rotated key. All query heads share the row as their key, and the latent as their value too, so it
// is stored once: [32 tokens][padded latent + key]. Scores are dot products along rows, two
// directions of the same memory being read in turn. Included by kernels.inl after
// attention_plain.inl.

namespace octavo {
namespace {

constexpr int kDotTokens = 4;
constexpr int kDotRows = kW == 16 ? 6 : 3;  // accumulators fill the register file

// out[r][0:4] = q[r] . row t of the four rows at `keys`, over the first n of d numbers.
template <int R, class T>
inline void latent_dots(const float* q, const T* keys, int64_t d, int64_t n, float* out) {
  Vec acc[R][kDotTokens];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < kDotTokens; ++t) acc[r][t] = zero();
  }
  for (int64_t k = 0; k < n; k += kW) {
    Vec key[kDotTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kDotTokens; ++t) key[t] = load(keys + t * d + k);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec x = load(q + r * d + k);
#pragma GCC unroll 16
      for (int t = 0; t < kDotTokens; ++t) acc[r][t] = fma(x, key[t], acc[r][t]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < kDotTokens; ++t) out[r * kScoresStride + t] = reduce_add(acc[r][t]);
  }
}

template <int R, class T>
inline void latent_dots_rows(int rows, const float* q, const T* keys, int64_t d, int64_t n,
                             float* out) {
  if constexpr (R > 0) {
    if (rows == R) return latent_dots<R>(q, keys, d, n, out);
    latent_dots_rows<R - 1>(rows, q, keys, d, n, out);
  }
}

template <class T>
struct LatentMath : ExactWeights {
  using Query = float;  // [rows][padded latent + key]

  static constexpr int64_t half_bytes(int64_t d) {
    return kBlockTokens * d * static_cast<int64_t>(sizeof(T)) / 2;
  }
  static void load_latent_query(const AttentionTask& t, int row, int64_t d, Query* out) {
    const int64_t token = row / t.group, head = row % t.group;
    const int64_t latent = t.latent_dim, rope = t.head_dim - latent;
    scale_rows(t.q + token * t.ldq + head * latent, out, latent, t.scale);
    scale_rows(t.q_rope + token * t.ldq_rope + head * rope, out + latent, rope, t.scale);
    std::fill(out + t.head_dim, out + d, 0.0f);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    products(rows, q, d, d, reinterpret_cast<const T*>(block), out);
  }
  // out[r][0:32] = q[r] . the block's rows, over the first n of their numbers.
  static void products(int rows, const Query* q, int64_t d, int64_t n, const T* keys, float* out) {
    for (int r = 0; r < rows; r += kDotRows) {
      const int count = std::min(kDotRows, rows - r);
      for (int t = 0; t < kBlockTokens; t += kDotTokens) {
        latent_dots_rows<kDotRows>(count, q + r * d, keys + t * d, d, n,
                                   out + r * kScoresStride + t);
      }
    }
  }
  // The first `columns` of out = p V over the keys in span; both have rows of d.
  static void latent_values(int rows, const float* p, int64_t d, int64_t columns,
                            const ChunkBlocks& blocks, Range span, float* out) {
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      prefetch(blocks.ahead[blocks.count + b], half_bytes(d));
      const Range keys = span.from(b * kBlockTokens);
      const int begin = std::max(keys.begin, 0), end = std::min(keys.end, kBlockTokens);
      const T* v = reinterpret_cast<const T*>(blocks.at[b]);
      for (int64_t c = 0; c < columns; c += kBlockTokens) {
        product32_rows<kMicroRows>(rows, p + b * kBlockTokens, kScoresStride, v + c, d, begin, end,
                                   out + c, d, keys.begin < 0);
      }
    }
  }
};

// n numbers to a place of the cache, where vectors need not fit.
template <class T>
void narrow_row(const float* x, T* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kBlockTokens) {
    float wide[kBlockTokens] = {};
    T narrowed[kBlockTokens];
    const int64_t count = std::min<int64_t>(kBlockTokens, n - i);
    std::copy(x + i, x + i + count, wide);
    convert(wide, narrowed, kBlockTokens);
    std::copy(narrowed, narrowed + count, out + i);
  }
}

template <class T>
void latent_write_as(const float* latent, const float* key, uint8_t* block, int64_t latent_dim,
                     int64_t rope_dim, int at) {
  const int64_t d = padded_head_dim(latent_dim + rope_dim);
  T* row = reinterpret_cast<T*>(block) + at * d;
  narrow_row(latent, row, latent_dim);
  narrow_row(key, row + latent_dim, rope_dim);
  std::fill(row + latent_dim + rope_dim, row + d, T{});
}

}  // namespace
}  // namespace octavo
