// A cache of latents in int8 codes: a token's latent and its rotated key with one float scale each.
// After the rows of codes a block holds the latents' scales [32] and the keys' [32]. Both are
// turned by a Hadamard matrix, as queries are, and the result is turned back. Included by
// kernels.inl after attention_int8.inl.

namespace octavo {
namespace {

struct LatentInt8 : LatentMath<int8_t> {
  static constexpr int64_t half_bytes(int64_t d) {
    return static_cast<int64_t>(kv_latent_bytes(KvType::kInt8, d)) / 2;
  }
  static const float* latent_scales(const uint8_t* block, int64_t d) {
    return reinterpret_cast<const float*>(block + kBlockTokens * d);
  }
  static void turn(float* x, int64_t n, float factor) {
    rotate(x, n);
    scale_rows(x, x, n, factor / static_cast<float>(rotation_size(n)));
  }

  static void load_latent_query(const AttentionTask& t, int row, int64_t d, Query* out) {
    LatentMath<int8_t>::load_latent_query(t, row, d, out);
    turn(out, t.latent_dim, 1.0f);
    turn(out + t.latent_dim, d - t.latent_dim, 1.0f);
  }
  static void latent_scores(int rows, const Query* q, int64_t d, int64_t latent,
                            const uint8_t* block, float* out, const uint8_t* ahead) {
    prefetch(ahead, half_bytes(d));
    const int8_t* codes = reinterpret_cast<const int8_t*>(block);
    const float* scale = latent_scales(block, d);
    float keys[kMicroRows * kScoresStride];
    products(rows, q, d, latent, codes, out);
    products(rows, q + latent, d, d - latent, codes + latent, keys);
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < kBlockTokens; t += kW) {
        float* score = out + r * kScoresStride + t;
        const Vec key = mul(load(keys + r * kScoresStride + t), load(scale + kBlockTokens + t));
        store(score, fma(load(score), load(scale + t), key));
      }
    }
  }
  // Scales of tokens that were never written may be anything, NaN too.
  static void put(const Vec (&p)[kCols], float* row, int b, const uint8_t* block, int64_t d,
                  Range seen) {
    float* x = row + b * kBlockTokens;
    store_block(p, x);
    mul_rows(x, latent_scales(block, d), x, kBlockTokens);
    keep(x, kBlockTokens, seen, 0.0f);
  }
  static void unturn_latent(float* row, int64_t latent) { turn(row, latent, 1.0f); }
};

void latent_write_int8(const float* latent, const float* key, uint8_t* block, int64_t latent_dim,
                       int64_t rope_dim, int at) {
  const int64_t d = latent_dim + rope_dim;
  float x[kMaxLatentDim];
  int8_t* codes = reinterpret_cast<int8_t*>(block) + at * d;
  float* scales = reinterpret_cast<float*>(block + kBlockTokens * d) + at;
  std::copy(latent, latent + latent_dim, x);
  rotate(x, latent_dim);
  scales[0] = quantize_int8(x, codes, latent_dim);
  std::copy(key, key + rope_dim, x);
  rotate(x, rope_dim);
  scales[kBlockTokens] = quantize_int8(x, codes + latent_dim, rope_dim);
}

void latent_write(const float* latent, const float* key, uint8_t* block, int64_t latent_dim,
                  int64_t rope_dim, int at, KvType type) {
  if (type == KvType::kF32) {
    latent_write_as<float>(latent, key, block, latent_dim, rope_dim, at);
  } else if (type == KvType::kF16) {
    latent_write_as<uint16_t>(latent, key, block, latent_dim, rope_dim, at);
  } else if (type == KvType::kInt8) {
    latent_write_int8(latent, key, block, latent_dim, rope_dim, at);
  } else {
    latent_write_as<Bf16>(latent, key, block, latent_dim, rope_dim, at);
  }
}

}  // namespace
}  // namespace octavo
