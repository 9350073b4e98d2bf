// Attention on int8 codes with vpdpbusd: four products a lane, summed exactly in int32. Queries are
// rounded to int8 by row, probabilities (times the values' scales) to uint8 by row and block. K is
// kept as [padded head_dim / 4][32 tokens][4] with 128 added, V as [8][padded head_dim][4 tokens].
// Included by attention_int8.inl where the instruction set has it.

namespace octavo {
namespace {

// sums[r][32 columns] = init(r) + sum over words k in [k0, k1) of dot(a[r][k], b[k]); the results
// go to finish(r, first column, sums). kUnsignedB: b holds the unsigned bytes, else a does.
template <int R, bool kUnsignedB, class Init, class Finish>
inline void product32_quads(const uint32_t* a, int64_t lda, const uint32_t* b, int64_t ldb, int k0,
                            int k1, Init init, Finish finish) {
  __m512i acc[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_set1_epi32(init(r));
  for (int k = k0; k < k1; ++k) {
    const __m512i b0 = _mm512_loadu_si512(b + k * ldb);
    const __m512i b1 = _mm512_loadu_si512(b + k * ldb + 16);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[r * lda + k]));
      acc[r][0] = kUnsignedB ? _mm512_dpbusd_epi32(acc[r][0], b0, x)
                             : _mm512_dpbusd_epi32(acc[r][0], x, b0);
      acc[r][1] = kUnsignedB ? _mm512_dpbusd_epi32(acc[r][1], b1, x)
                             : _mm512_dpbusd_epi32(acc[r][1], x, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    finish(r, 0, _mm512_cvtepi32_ps(acc[r][0]));
    finish(r, 16, _mm512_cvtepi32_ps(acc[r][1]));
  }
}

template <int R, bool kUnsignedB, class Init, class Finish>
inline void product32_quad_rows(int rows, const uint32_t* a, int64_t lda, const uint32_t* b,
                                int64_t ldb, int k0, int k1, Init init, Finish finish) {
  if constexpr (R > 0) {
    if (rows == R) {
      return product32_quads<R, kUnsignedB>(a, lda, b, ldb, k0, k1, init, finish);
    }
    product32_quad_rows<R - 1, kUnsignedB>(rows, a, lda, b, ldb, k0, k1, init, finish);
  }
}

struct QuadMath : ExactWeights {
  // A query row: d codes, then at word d / 4 their scale, then minus 128 times their sum (int32).
  // A row of probabilities: 32 codes, then at word 8 their scale.
  using Query = float;
  static constexpr int kScaleWord = kBlockTokens / 4;

  static constexpr int64_t half_bytes(int64_t d) {
    return static_cast<int64_t>(kv_head_bytes(KvType::kInt8, d)) / 2;
  }
  static void put_key(const int8_t* codes, uint8_t* keys, int64_t d, int at) {
    for (int64_t i = 0; i < d / 4; ++i) {
      uint32_t quad;
      std::memcpy(&quad, codes + 4 * i, 4);
      quad ^= 0x80808080u;  // adds 128 to each code
      std::memcpy(keys + (i * kBlockTokens + at) * 4, &quad, 4);
    }
  }
  static void put_value(const int8_t* codes, uint8_t* values, int64_t d, int at) {
    uint8_t* v = values + at / 4 * 4 * d + at % 4;
    for (int64_t i = 0; i < d; ++i) v[4 * i] = static_cast<uint8_t>(codes[i]);
  }

  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    float rotated[kMaxHeadDim];
    rotated_query(q, head_dim, d, scale, rotated);
    int8_t* codes = reinterpret_cast<int8_t*>(out);
    out[d / 4] = quantize_int8(rotated, codes, d);
    int32_t sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += codes[i];
    out[d / 4 + 1] = std::bit_cast<float>(-128 * sum);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    const float* k = k_scales(block, d);
    const __m512 k_scale[2] = {_mm512_loadu_ps(k), _mm512_loadu_ps(k + 16)};
    const auto offset = [&](int r) { return std::bit_cast<int32_t>(q[r * d + d / 4 + 1]); };
    const auto finish = [&](int r, int column, __m512 sums) {
      const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(q[r * d + d / 4]), k_scale[column / 16]);
      _mm512_storeu_ps(out + r * kScoresStride + column, _mm512_mul_ps(sums, scale));
    };
    product32_quad_rows<kMicroRows, true>(rows, reinterpret_cast<const uint32_t*>(q), d,
                                          reinterpret_cast<const uint32_t*>(block), kBlockTokens, 0,
                                          static_cast<int>(d / 4), offset, finish);
  }
  // Scales of tokens that were never written may be anything, NaN too: masked out.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t* block, int64_t d,
                  Range seen) {
    store_block(p, row + b * kBlockTokens);
    weigh_block(row + b * kBlockTokens, block, d, seen);
  }
  static void weigh_block(float* p, const uint8_t* block, int64_t d, Range seen) {
    constexpr float kNothing = 1e-30f;
    const float* v = v_scales(block, d);
    const uint64_t below_end = (uint64_t{1} << std::clamp(seen.end, 0, 32)) - 1;
    const uint32_t keys = static_cast<uint32_t>(below_end) &
                          static_cast<uint32_t>(-(uint64_t{1} << std::clamp(seen.begin, 0, 32)));
    const __m512 p0 =
        _mm512_maskz_mul_ps(static_cast<__mmask16>(keys), _mm512_loadu_ps(p), _mm512_loadu_ps(v));
    const __m512 p1 = _mm512_maskz_mul_ps(static_cast<__mmask16>(keys >> 16),
                                          _mm512_loadu_ps(p + 16), _mm512_loadu_ps(v + 16));
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(p0, p1));
    const bool some = largest > kNothing;
    const __m512 inverse = _mm512_set1_ps(some ? 255.0f / largest : 0.0f);
    const __m512i c0 = _mm512_cvtps_epi32(_mm512_mul_ps(p0, inverse));
    const __m512i c1 = _mm512_cvtps_epi32(_mm512_mul_ps(p1, inverse));
    __m128i* codes = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(codes, _mm512_cvtusepi32_epi8(c0));
    _mm_storeu_si128(codes + 1, _mm512_cvtusepi32_epi8(c1));
    p[kScaleWord] = some ? largest / 255.0f : 0.0f;
  }
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      prefetch(blocks.ahead[blocks.count + b], half_bytes(d));
      const Range keys = span.from(b * kBlockTokens);
      block_values(rows, p + b * kBlockTokens, d, blocks.at[b], keys, out, keys.begin < 0);
    }
  }
  // out = (more ? out : 0) + p V of one block.
  static void block_values(int rows, const float* p, int64_t d, const uint8_t* block, Range keys,
                           float* out, bool more) {
    const uint32_t* v = reinterpret_cast<const uint32_t*>(block + kBlockTokens * d);
    const int begin = std::max(keys.begin, 0), end = std::min(keys.end, kBlockTokens);
    for (int64_t c = 0; c < d; c += kBlockTokens) {
      const auto finish = [&](int r, int column, __m512 sums) {
        float* o = out + r * d + c + column;
        const __m512 before = more ? _mm512_loadu_ps(o) : _mm512_setzero_ps();
        const __m512 scale = _mm512_set1_ps(p[r * kScoresStride + kScaleWord]);
        _mm512_storeu_ps(o, _mm512_fmadd_ps(sums, scale, before));
      };
      product32_quad_rows<kMicroRows, false>(
          rows, reinterpret_cast<const uint32_t*>(p), kScoresStride, v + c, d, begin / 4,
          (end + 3) / 4, [](int) { return 0; }, finish);
    }
  }
};

}  // namespace
}  // namespace octavo
