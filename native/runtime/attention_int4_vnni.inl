// Attention on 4-bit codes with vpdpbusd: codes are the bytes of the product as they are, two to a
// byte in memory. Queries are rounded to int8 by row, probabilities (times the values' scales) to
// uint8 by row and block. All codes of a key or value are positive, so these roundings would add
// up: they are made against codes less their middle, and the rest is exact. K is kept as [padded
// head_dim / 8][32 tokens][4 bytes], of elements j and j + 4 of the eight, V as [4][padded
// head_dim][4 bytes], of tokens j and j + 4 of the eight. Included by attention_int4.inl where the
// instruction set has it.

namespace octavo {
namespace {

struct Nibbles {
  __m512i low;
  __m512i high;
};

inline Nibbles nibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask)};
}

inline __m512 widened(const uint16_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

inline __m512i broadcast(uint32_t word) {
  return _mm512_set1_epi32(static_cast<int>(word));
}

constexpr float kMiddle = 7.5f;  // of a code

// A row of queries: d floats, rotated; their d codes; of each group the sum of the floats, and the
// middle times what that sum lost by rounding; the codes' scale.
struct Int4Query {
  const float* row;
  int64_t d;

  static constexpr int64_t stride(int64_t d) {
    return (d + d / 4 + 2 * d / kKeyGroup + 1 + 15) / 16 * 16;
  }
  const uint32_t* codes() const { return reinterpret_cast<const uint32_t*>(row + d); }
  const float* sums() const { return row + d + d / 4; }
  const float* lost() const { return sums() + d / kKeyGroup; }
  float scale() const { return lost()[d / kKeyGroup]; }
};

// out[r][0:16] = q[r] . the keys of 16 tokens, from token `first` on.
template <int R>
inline void int4_scores(const float* q, Int4Block<const uint8_t> block, int first, float* out) {
  constexpr int64_t kLines = kKeyGroup / 8;  // of a group: 16 tokens by 8 elements
  const int64_t d = block.d, stride = Int4Query::stride(d);
  const uint8_t* keys = block.keys() + first * 4;
  __m512 total[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) total[r] = _mm512_setzero_ps();
  for (int64_t g = 0; g < d / kKeyGroup; ++g) {
    __m512i acc[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_si512();
    for (int64_t i = g * kLines; i < (g + 1) * kLines; ++i) {
      const Nibbles k = nibbles(keys + i * kBlockTokens * 4);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const uint32_t* codes = Int4Query{q + r * stride, d}.codes() + 2 * i;
        acc[r] = _mm512_dpbusd_epi32(acc[r], k.low, broadcast(codes[0]));
        acc[r] = _mm512_dpbusd_epi32(acc[r], k.high, broadcast(codes[1]));
      }
    }
    const __m512 scale = widened(block.k_scale(g) + first), least = widened(block.k_min(g) + first);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Int4Query row{q + r * stride, d};
      const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r]), _mm512_set1_ps(row.scale()),
                                         _mm512_set1_ps(row.lost()[g]));
      total[r] = _mm512_fmadd_ps(sum, scale, total[r]);
      total[r] = _mm512_fmadd_ps(least, _mm512_set1_ps(row.sums()[g]), total[r]);
    }
  }
  const __m512 beta = widened(block.beta() + first);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 anchored = _mm512_set1_ps(out[r * kScoresStride + first]);
    _mm512_storeu_ps(out + r * kScoresStride + first, _mm512_fmadd_ps(beta, anchored, total[r]));
  }
}

template <int R>
inline void int4_scores_rows(int rows, const float* q, Int4Block<const uint8_t> block, int first,
                             float* out) {
  if constexpr (R > 0) {
    if (rows == R) return int4_scores<R>(q, block, first, out);
    int4_scores_rows<R - 1>(rows, q, block, first, out);
  }
}

// out[r][0:32] = (more ? out[r][0:32] : 0) + sums of p[r] times 32 columns of values, of the eights
// of tokens [begin, end). A row of probabilities: 32 codes, their scale, what all columns get.
template <int R>
inline void int4_values(const float* p, const uint8_t* v, int64_t d, int begin, int end, float* out,
                        bool more) {
  constexpr int kScaleWord = kBlockTokens / 4;
  __m512i acc[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
  for (int o = begin; o < end; ++o) {
    const Nibbles left = nibbles(v + o * d * 4), right = nibbles(v + o * d * 4 + 64);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const uint32_t* codes = reinterpret_cast<const uint32_t*>(p + r * kScoresStride) + 2 * o;
      const __m512i first = broadcast(codes[0]), second = broadcast(codes[1]);
      acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], first, left.low);
      acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], first, right.low);
      acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], second, left.high);
      acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], second, right.high);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 scale = _mm512_set1_ps(p[r * kScoresStride + kScaleWord]);
    const __m512 least = _mm512_set1_ps(p[r * kScoresStride + kScaleWord + 1]);
#pragma GCC unroll 16
    for (int j = 0; j < 2; ++j) {
      float* o = out + r * d + 16 * j;
      const __m512 before = more ? _mm512_loadu_ps(o) : _mm512_setzero_ps();
      const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][j]), scale, least);
      _mm512_storeu_ps(o, _mm512_add_ps(before, sum));
    }
  }
}

template <int R>
inline void int4_values_rows(int rows, const float* p, const uint8_t* v, int64_t d, int begin,
                             int end, float* out, bool more) {
  if constexpr (R > 0) {
    if (rows == R) return int4_values<R>(p, v, d, begin, end, out, more);
    int4_values_rows<R - 1>(rows, p, v, d, begin, end, out, more);
  }
}

struct QuadInt4 : ExactWeights {
  using Query = float;
  static constexpr int kScaleWord = kBlockTokens / 4;

  static constexpr int64_t query_stride(int64_t d) { return Int4Query::stride(d); }
  static constexpr int64_t half_bytes(int64_t d) { return WidenedInt4::half_bytes(d); }
  static void put_key(const uint8_t* codes, uint8_t* keys, int64_t d, int at) {
    for (int64_t i = 0; i < d; i += 8) {
      uint8_t* bytes = keys + (i / 8 * kBlockTokens + at) * 4;
      for (int j = 0; j < 4; ++j) {
        bytes[j] = static_cast<uint8_t>(codes[i + j] | codes[i + j + 4] << 4);
      }
    }
  }
  static void put_value(const uint8_t* codes, uint8_t* values, int64_t d, int at) {
    uint8_t* v = values + at / 8 * d * 4 + at % 4;
    for (int64_t i = 0; i < d; ++i) put_nibble(v + i * 4, codes[i], at % 8 >= 4);
  }
  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    WidenedInt4::load_query(q, head_dim, d, scale, out);
    int8_t* codes = reinterpret_cast<int8_t*>(out + d);
    const float step = quantize_int8(out, codes, d);
    float* sums = out + d + d / 4;
    float* lost = sums + d / kKeyGroup;
    lost[d / kKeyGroup] = step;
    for (int64_t g = 0; g < d / kKeyGroup; ++g) {
      Vec sum = zero();
      int32_t rounded = 0;
      for (int64_t i = g * kKeyGroup; i < (g + 1) * kKeyGroup; i += kW) {
        sum = add(sum, load(out + i));
        for (int j = 0; j < kW; ++j) rounded += codes[i + j];
      }
      sums[g] = reduce_add(sum);
      lost[g] = kMiddle * (sums[g] - step * static_cast<float>(rounded));
    }
  }
  static void unturn(float* row, int64_t d) { turn(row, d); }

  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* data, float* out,
                     const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    const Int4Block<const uint8_t> block{data, d};
    for (int r = 0; r < rows; ++r) {
      const float anchored = anchor_dot(q + r * query_stride(d), block);
      out[r * kScoresStride] = out[r * kScoresStride + 16] = anchored;
    }
    for (int first = 0; first < kBlockTokens; first += 16) {
      int4_scores_rows<kMicroRows>(rows, q, block, first, out);
    }
  }
  static float anchor_dot(const float* q, Int4Block<const uint8_t> block) {
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < block.d; i += 32) {
      for (int j = 0; j < 2; ++j) {
        const __m512 anchor = widened(block.anchor() + i + 16 * j);
        sum[j] = _mm512_fmadd_ps(_mm512_loadu_ps(q + i + 16 * j), anchor, sum[j]);
      }
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
  }

  // Scales and mins of tokens that were never written may be anything, NaN too: masked out.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t* block, int64_t d,
                  Range seen) {
    store_block(p, row + b * kBlockTokens);
    weigh_block(row + b * kBlockTokens, {block, d}, seen);
  }
  static void weigh_block(float* p, Int4Block<const uint8_t> block, Range seen) {
    constexpr float kNothing = 1e-30f;
    const uint64_t below_end = (uint64_t{1} << std::clamp(seen.end, 0, 32)) - 1;
    const uint32_t keys = static_cast<uint32_t>(below_end) &
                          static_cast<uint32_t>(-(uint64_t{1} << std::clamp(seen.begin, 0, 32)));
    const __mmask16 mask[2] = {static_cast<__mmask16>(keys), static_cast<__mmask16>(keys >> 16)};
    __m512 scaled[2], exact = _mm512_setzero_ps();
    for (int i = 0; i < 2; ++i) {
      const __m512 x = _mm512_loadu_ps(p + 16 * i), step = widened(block.v_scale() + 16 * i);
      const __m512 middle =
          _mm512_fmadd_ps(step, _mm512_set1_ps(kMiddle), widened(block.v_min() + 16 * i));
      scaled[i] = _mm512_maskz_mul_ps(mask[i], x, step);
      exact = _mm512_add_ps(exact, _mm512_maskz_mul_ps(mask[i], x, middle));
    }
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(scaled[0], scaled[1]));
    const bool some = largest > kNothing;
    const __m512 inverse = _mm512_set1_ps(some ? 255.0f / largest : 0.0f);
    __m128i* codes = reinterpret_cast<__m128i*>(p);
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 2; ++i) {
      const __m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(scaled[i], inverse));
      sum = _mm512_add_epi32(sum, c);
      _mm_storeu_si128(codes + i, _mm512_cvtusepi32_epi8(c));
    }
    const float step = some ? largest / 255.0f : 0.0f;
    const float rounded = step * static_cast<float>(_mm512_reduce_add_epi32(sum));
    p[kScaleWord] = step;
    p[kScaleWord + 1] = _mm512_reduce_add_ps(exact) - kMiddle * rounded;
  }
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      prefetch(blocks.ahead[blocks.count + b], half_bytes(d));
      const Range keys = span.from(b * kBlockTokens);
      const int begin = std::max(keys.begin, 0) / 8;
      const int end = (std::min(keys.end, kBlockTokens) + 7) / 8;
      const uint8_t* v = Int4Block<const uint8_t>{blocks.at[b], d}.values();
      for (int64_t c = 0; c < d; c += kBlockTokens) {
        int4_values_rows<kMicroRows>(rows, p + b * kBlockTokens, v + c * 4, d, begin, end, out + c,
                                     keys.begin < 0);
      }
    }
  }
};

}  // namespace
}  // namespace octavo
