// A cache of int8 codes: K and V of each token with one float scale per KV head. After the codes a
// block holds k_scales [32] and v_scales [32]. Included by kernels.inl after
// attention_plain.inl.
//
// Keys are stored rotated by a Hadamard matrix and queries are rotated alike, which leaves their
// products as they were. Some models put a few huge numbers into every key; without the rotation
// they would set the scale and leave the rest of the key few levels.

namespace octavo {
namespace {

inline float* k_scales(uint8_t* block, int64_t d) {
  return reinterpret_cast<float*>(block + 2 * kBlockTokens * d);
}
inline const float* k_scales(const uint8_t* block, int64_t d) {
  return reinterpret_cast<const float*>(block + 2 * kBlockTokens * d);
}
inline const float* v_scales(const uint8_t* block, int64_t d) {
  return k_scales(block, d) + kBlockTokens;
}

inline void butterflies(const float* __restrict x, float* __restrict out, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    out[2 * i] = x[i] + x[i + half];
    out[2 * i + 1] = x[i] - x[i + half];
  }
}

// The size of the Hadamard matrix: the largest power of two that divides d.
inline int64_t rotation_size(int64_t d) {
  return d & -d;
}

// x[d] = Hadamard matrix times x, piece by piece, not normalised: lengths grow by sqrt(size).
inline void rotate(float* x, int64_t d) {
  const int64_t size = rotation_size(d);
  float other[kMaxHeadDim];
  for (int64_t at = 0; at < d; at += size) {
    float *from = x + at, *to = other;
    for (int64_t h = 1; h < size; h *= 2) {
      butterflies(from, to, size / 2);
      std::swap(from, to);
    }
    if (from == other) std::copy(other, other + size, x + at);
  }
}

// codes = x / scale, from -127 to 127; returns the scale. n is a multiple of 32.
inline float quantize_int8(const float* x, int8_t* codes, int64_t n) {
  Vec top = zero();
  for (int64_t i = 0; i < n; i += kW) {
    const Vec v = load(x + i);
    top = max(max(v, sub(zero(), v)), top);
  }
  const float largest = reduce_max(top);
  const Vec inverse = set1(largest > 0 ? 127.0f / largest : 0.0f);
  float rounded[kMaxHeadDim];
  for (int64_t i = 0; i < n; i += kW) {
    const Vec code = round(mul(load(x + i), inverse));
    store(rounded + i, min(max(code, set1(-127.0f)), set1(127.0f)));
  }
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(rounded[i]);
  return largest / 127.0f;
}

// out[d] = the query times `scale`, rotated as keys are.
inline void rotated_query(const float* q, int64_t head_dim, int64_t d, float scale, float* out) {
  scale_rows(q, out, head_dim, scale / static_cast<float>(rotation_size(d)));
  std::fill(out + head_dim, out + d, 0.0f);
  rotate(out, d);
}

// Codes widened to float: K as [padded head_dim][32 tokens], V as [32 tokens][padded head_dim].
struct WidenedMath : PlainMath<int8_t> {
  static constexpr int64_t half_bytes(int64_t d) {
    return static_cast<int64_t>(kv_head_bytes(KvType::kInt8, d)) / 2;
  }
  static void put_key(const int8_t* codes, uint8_t* keys, int64_t d, int at) {
    for (int64_t i = 0; i < d; ++i) keys[i * kBlockTokens + at] = static_cast<uint8_t>(codes[i]);
  }
  static void put_value(const int8_t* codes, uint8_t* values, int64_t d, int at) {
    std::memcpy(values + at * d, codes, static_cast<size_t>(d));
  }
  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    rotated_query(q, head_dim, d, scale, out);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    PlainMath<int8_t>::scores(rows, q, d, d, block, out, ahead);
    for (int r = 0; r < rows; ++r, out += kScoresStride) {
      mul_rows(out, k_scales(block, d), out, kBlockTokens);
    }
  }
  // Scales of tokens that were never written may be anything, NaN too.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t* block, int64_t d,
                  Range seen) {
    float* x = row + b * kBlockTokens;
    store_block(p, x);
    mul_rows(x, v_scales(block, d), x, kBlockTokens);
    keep(x, kBlockTokens, seen, 0.0f);
  }
};

}  // namespace
}  // namespace octavo

#if defined(__AVX512VNNI__)
#include "runtime/attention_vnni.inl"
#endif

namespace octavo {
namespace {

#if defined(__AVX512VNNI__)
using Int8Math = QuadMath;
#else
using Int8Math = WidenedMath;
#endif

void kv_write_int8(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at) {
  const int64_t d = padded_head_dim(head_dim);
  float wide[kMaxHeadDim] = {};
  int8_t codes[kMaxHeadDim];
  float* scales = k_scales(block, d) + at;
  std::copy(v, v + head_dim, wide);
  scales[kBlockTokens] = quantize_int8(wide, codes, d);
  Int8Math::put_value(codes, block + kBlockTokens * d, d, at);
  std::copy(k, k + head_dim, wide);
  rotate(wide, d);
  scales[0] = quantize_int8(wide, codes, d);
  Int8Math::put_key(codes, block, d, at);
}

}  // namespace
}  // namespace octavo
