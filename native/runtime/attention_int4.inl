// A cache of 4-bit codes. Included by kernels.inl after attention_int8.inl.
//
// Keys of one head are much alike: in some models nearly all of a key is the same in every token
// (the bias of its projection), and 4 bits would be spent on that. So of each block the first key
// is kept in float16, the anchor, and of each key what it has of the anchor (one number, beta) and
// the codes of the rest: key = beta * anchor + rest. Anchor and rest are rotated by a Hadamard
// matrix, as queries are, so that no few large numbers set the scale; values are rotated too, and
// the result is turned back. A code c means c * scale + min, of 32 numbers of a key or of a whole
// value.
//
// A key is written after the first one of its block, whoever writes: see Heads.

#include "runtime/half.h"

namespace octavo {
namespace {

constexpr int64_t kKeyGroup = 32;  // numbers of a key that share scale and min

// Where a block of one KV head has what; d is the padded head_dim.
template <class Byte>
struct Int4Block {
  Byte* data;
  int64_t d;

  using Half = std::conditional_t<std::is_const_v<Byte>, const uint16_t, uint16_t>;
  Byte* keys() const { return data; }                                      // 16 * d bytes
  Byte* values() const { return data + kBlockTokens / 2 * d; }             // likewise
  Half* anchor() const { return halves(0); }                               // [d]
  Half* k_scale(int64_t g) const { return halves(d + g * kBlockTokens); }  // [d / 32][32 tokens]
  Half* k_min(int64_t g) const { return k_scale(d / kKeyGroup + g); }      // likewise
  Half* beta() const { return k_scale(2 * d / kKeyGroup); }                // [32 tokens]
  Half* v_scale() const { return beta() + kBlockTokens; }                  // likewise
  Half* v_min() const { return v_scale() + kBlockTokens; }                 // likewise

 private:
  Half* halves(int64_t i) const { return reinterpret_cast<Half*>(data + kBlockTokens * d) + i; }
};

inline float rounded_to_half(float x, uint16_t* out) {
  *out = float_to_half(x);
  return half_to_float(*out);
}

// x of d numbers, rotated without changing its length.
inline void turn(float* x, int64_t d) {
  rotate(x, d);
  scale_rows(x, x, d, 1.0f / std::sqrt(static_cast<float>(rotation_size(d))));
}

inline float dot(const float* a, const float* b, int64_t n) {
  Vec sum = zero();
  for (int64_t i = 0; i < n; i += kW) sum = fma(load(a + i), load(b + i), sum);
  return reduce_add(sum);
}

// Codes of n numbers, a multiple of 32, and what they mean.
inline void quantize_int4(const float* x, int64_t n, uint8_t* codes, uint16_t* scale,
                          uint16_t* least) {
  Vec low = load(x), high = low;
  for (int64_t i = kW; i < n; i += kW) {
    low = min(low, load(x + i));
    high = max(high, load(x + i));
  }
  const float bottom = -reduce_max(sub(zero(), low)), top = reduce_max(high);
  const float m = rounded_to_half(bottom, least);
  const float s = rounded_to_half((top - bottom) / 15.0f, scale);
  const Vec shift = set1(m), inverse = set1(s > 0 ? 1.0f / s : 0.0f);
  float rounded[kMaxHeadDim];
  for (int64_t i = 0; i < n; i += kW) {
    const Vec code = round(mul(sub(load(x + i), shift), inverse));
    store(rounded + i, min(max(code, zero()), set1(15.0f)));
  }
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(rounded[i]);
}

inline void put_nibble(uint8_t* byte, uint8_t code, bool high) {
  *byte = high ? static_cast<uint8_t>((*byte & 0x0f) | code << 4)
               : static_cast<uint8_t>((*byte & 0xf0) | code);
}

// Codes widened to what they mean, 32 by 32. K as [d][16 bytes], of tokens t and t + 16; V as
// [32 tokens][d / 32][16 bytes], of columns c and c + 16.
struct WidenedInt4 : ExactWeights {
  using Query = float;  // [rows][padded head_dim], rotated

  static constexpr int64_t half_bytes(int64_t d) {
    return static_cast<int64_t>(kv_head_bytes(KvType::kInt4, d)) / 2;
  }
  static void put_key(const uint8_t* codes, uint8_t* keys, int64_t d, int at) {
    for (int64_t i = 0; i < d; ++i) put_nibble(keys + i * 16 + at % 16, codes[i], at >= 16);
  }
  static void put_value(const uint8_t* codes, uint8_t* values, int64_t d, int at) {
    uint8_t* v = values + at * d / 2;
    for (int64_t i = 0; i < d; ++i) put_nibble(v + i / 32 * 16 + i % 16, codes[i], i % 32 >= 16);
  }
  static void load_query(const float* q, int64_t head_dim, int64_t d, float scale, Query* out) {
    scale_rows(q, out, head_dim, scale);
    std::fill(out + head_dim, out + d, 0.0f);
    turn(out, d);
  }
  static void unturn(float* row, int64_t d) { turn(row, d); }

  // out[0:16] and out[16:32] = the low and the high codes of 16 bytes.
  static void widen(const uint8_t* bytes, float* out) {
    for (int i = 0; i < 16; ++i) out[i] = static_cast<float>(bytes[i] & 15);
    for (int i = 0; i < 16; ++i) out[16 + i] = static_cast<float>(bytes[i] >> 4);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    const Int4Block<const uint8_t> b{block, d};
    alignas(64) float keys[kKeyGroup * kBlockTokens];
    for (int64_t g = 0; g < d / kKeyGroup; ++g) {
      for (int64_t i = 0; i < kKeyGroup; ++i) {
        const int64_t k = g * kKeyGroup + i;
        float* row = keys + i * kBlockTokens;
        widen(b.keys() + k * 16, row);
        const Vec anchor = set1(half_to_float(b.anchor()[k]));
        for (int t = 0; t < kBlockTokens; t += kW) {
          const Vec base = fma(anchor, load(b.beta() + t), load(b.k_min(g) + t));
          store(row + t, fma(load(row + t), load(b.k_scale(g) + t), base));
        }
      }
      product32_rows<kMicroRows>(rows, q + g * kKeyGroup, d, keys, kBlockTokens, 0,
                                 static_cast<int>(kKeyGroup), out, kScoresStride, g > 0);
    }
  }
  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      prefetch(blocks.ahead[blocks.count + b], half_bytes(d));
      const Range keys = span.from(b * kBlockTokens);
      block_values(rows, p + b * kBlockTokens, d, {blocks.at[b], d}, keys, out);
    }
  }
  static void block_values(int rows, const float* p, int64_t d, Int4Block<const uint8_t> block,
                           Range keys, float* out) {
    const int begin = std::max(keys.begin, 0), end = std::min(keys.end, kBlockTokens);
    alignas(64) float values[kBlockTokens * kBlockTokens];
    for (int64_t c = 0; c < d; c += kBlockTokens) {
      for (int t = begin; t < end; ++t) {
        float* row = values + t * kBlockTokens;
        widen(block.values() + t * d / 2 + c / 2, row);
        const Vec scale = set1(half_to_float(block.v_scale()[t]));
        const Vec least = set1(half_to_float(block.v_min()[t]));
        for (int i = 0; i < kBlockTokens; i += kW) store(row + i, fma(load(row + i), scale, least));
      }
      product32_rows<kMicroRows>(rows, p, kScoresStride, values, kBlockTokens, begin, end, out + c,
                                 d, keys.begin < 0);
    }
  }
};

}  // namespace
}  // namespace octavo

#if defined(__AVX512VNNI__)
#include "runtime/attention_int4_vnni.inl"
#endif

namespace octavo {
namespace {

#if defined(__AVX512VNNI__)
using Int4Math = QuadInt4;
#else
using Int4Math = WidenedInt4;
#endif

void write_key_int4(const float* k, Int4Block<uint8_t> block, int64_t head_dim, int at) {
  const int64_t d = block.d;
  float key[kMaxHeadDim] = {}, anchor[kMaxHeadDim];
  uint8_t codes[kMaxHeadDim];
  std::copy(k, k + head_dim, key);
  turn(key, d);
  if (at == 0) convert(key, block.anchor(), d);
  for (int64_t i = 0; i < d; i += kW) store(anchor + i, load(block.anchor() + i));
  const float length = dot(anchor, anchor, d);
  const float share = at == 0 ? 1.0f : length > 0 ? dot(key, anchor, d) / length : 0.0f;
  const Vec beta = set1(-rounded_to_half(share, block.beta() + at));
  for (int64_t i = 0; i < d; i += kW) {
    store(key + i, fma(beta, load(anchor + i), load(key + i)));
  }
  for (int64_t g = 0; g < d / kKeyGroup; ++g) {
    quantize_int4(key + g * kKeyGroup, kKeyGroup, codes + g * kKeyGroup, block.k_scale(g) + at,
                  block.k_min(g) + at);
  }
  Int4Math::put_key(codes, block.keys(), d, at);
}

void kv_write_int4(const float* k, const float* v, uint8_t* data, int64_t head_dim, int at) {
  const Int4Block<uint8_t> block{data, padded_head_dim(head_dim)};
  write_key_int4(k, block, head_dim, at);
  float value[kMaxHeadDim] = {};
  uint8_t codes[kMaxHeadDim];
  std::copy(v, v + head_dim, value);
  turn(value, block.d);
  quantize_int4(value, block.d, codes, block.v_scale() + at, block.v_min() + at);
  Int4Math::put_value(codes, block.values(), block.d, at);
}

}  // namespace
}  // namespace octavo
