// Bodies of RuntimeKernels, compiled once per instruction set after a simd_*.h that defines
// simd::Vec. Every function treats each row by itself with one order of additions, so a row's bits
// do not depend on what else is computed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/kernels.h"
#include "runtime/simd_bf16.h"

namespace octavo {
namespace {

using namespace simd;

constexpr int kW = Vec::kWidth;
constexpr int kCols = kBlockTokens / kW;  // vectors across 32 columns

// e^x for x in [-87, 88], else clamped. Cody-Waite reduction, degree-6 polynomial, about 1 ulp.
inline Vec exp_vec(Vec x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  const Vec n = round(mul(x, set1(1.44269504f)));
  Vec r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  Vec p = set1(1.3888889e-3f);
  p = fma(p, r, set1(8.3333333e-3f));
  p = fma(p, r, set1(4.1666667e-2f));
  p = fma(p, r, set1(1.6666667e-1f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return scale2(p, n);
}

inline Vec silu_vec(Vec x) {
  return div(x, add(set1(1.0f), exp_vec(sub(zero(), x))));
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
inline Vec gelu_vec(Vec x) {
  const Vec cubic = mul(mul(x, x), mul(x, set1(0.044715f)));
  const Vec u2 = mul(add(x, cubic), set1(-2.0f * 0.7978845608f));
  return div(x, add(set1(1.0f), exp_vec(u2)));
}

inline Vec tanh_vec(Vec x) {  // 1 - 2 / (1 + e^(2x))
  return sub(set1(1.0f), div(set1(2.0f), add(set1(1.0f), exp_vec(add(x, x)))));
}

// out[i] = f(a[i], b[i]); the tail goes through a padded copy so that it gets the same arithmetic.
template <class F>
inline void map2(const float* a, const float* b, float* out, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kW <= n; i += kW) store(out + i, f(load(a + i), load(b + i)));
  if (i == n) return;
  float ta[kW] = {}, tb[kW] = {}, to[kW];
  std::copy(a + i, a + n, ta);
  std::copy(b + i, b + n, tb);
  store(to, f(load(ta), load(tb)));
  std::copy(to, to + (n - i), out + i);
}

template <class F>
inline void map1(const float* x, float* out, int64_t n, F f) {
  map2(x, x, out, n, [&](Vec a, Vec) { return f(a); });
}

void rms_norm(const float* x, const float* w, float* out, int64_t n, float eps, float offset) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (int lane = 0; i + kW <= n; i += kW, lane = (lane + 1) & 3) {
    const Vec v = load(x + i);
    sums[lane] = fma(v, v, sums[lane]);
  }
  float total = reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  for (; i < n; ++i) total += x[i] * x[i];
  const Vec inverse = set1(1.0f / std::sqrt(total / static_cast<float>(n) + eps));
  const Vec shift = set1(offset);
  map2(x, w, out, n, [&](Vec a, Vec b) { return mul(mul(a, inverse), add(b, shift)); });
}

void silu_mul(float* gate, const float* up, int64_t n) {
  map2(gate, up, gate, n, [](Vec g, Vec u) { return mul(silu_vec(g), u); });
}
void gelu_mul(float* gate, const float* up, int64_t n) {
  map2(gate, up, gate, n, [](Vec g, Vec u) { return mul(gelu_vec(g), u); });
}
void silu(const float* x, float* out, int64_t n) {
  map1(x, out, n, silu_vec);
}
void gelu(const float* x, float* out, int64_t n) {
  map1(x, out, n, gelu_vec);
}
void softcap(const float* x, float* out, int64_t n, float cap) {
  const Vec c = set1(cap), inverse = set1(1.0f / cap);
  map1(x, out, n, [&](Vec a) { return mul(c, tanh_vec(mul(a, inverse))); });
}
void add_rows(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, add);
}
void mul_rows(const float* a, const float* b, float* out, int64_t n) {
  map2(a, b, out, n, mul);
}
void scale_rows(const float* x, float* out, int64_t n, float factor) {
  const Vec f = set1(factor);
  map1(x, out, n, [&](Vec a) { return mul(a, f); });
}

void rope(float* head, const float* cs, int64_t half, bool interleaved) {
  const float* c = cs;
  const float* s = cs + half;
  const int64_t step = interleaved ? 2 : 1;
  const int64_t other = interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i * step], b = head[i * step + other];
    head[i * step] = a * c[i] - b * s[i];
    head[i * step + other] = b * c[i] + a * s[i];
  }
}

inline void narrow(float x, float* p) {
  *p = x;
}
inline void narrow(float x, Bf16* p) {
  *p = float_to_bf16(x);
}

template <class T>
void convert(const float* x, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    for (int64_t i = 0; i < n; i += kW) store(out + i, load(x + i));
  } else {
    for (int64_t i = 0; i < n; ++i) narrow(x[i], out + i);
  }
}

template <class T>
void kv_write_as(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at) {
  T* kt = reinterpret_cast<T*>(block);
  T* vt = kt + padded_head_dim(head_dim) * kBlockTokens;
  const int64_t padded = padded_head_dim(head_dim);
  float wide[kMaxHeadDim] = {};
  T narrow_k[kMaxHeadDim];
  std::copy(k, k + head_dim, wide);
  convert(wide, narrow_k, padded);
  for (int64_t d = 0; d < head_dim; ++d) kt[d * kBlockTokens + at] = narrow_k[d];
  std::copy(v, v + head_dim, wide);
  convert(wide, vt + at * padded, padded);
}

void kv_write(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at,
              KvType type) {
  if (type == KvType::kF32) return kv_write_as<float>(k, v, block, head_dim, at);
  if (type == KvType::kF16) return kv_write_as<uint16_t>(k, v, block, head_dim, at);
  kv_write_as<Bf16>(k, v, block, head_dim, at);
}

// c[r][0:32] = (init ? init[r] * c[r][0:32] : 0) + sum over k in [k0, k1) of a[r][k] * b[k][0:32].
template <int R, class T>
inline void product32(const float* a, int64_t lda, const T* b, int64_t ldb, int k0, int k1,
                      float* c, int64_t ldc, const float* init) {
  Vec acc[R][kCols];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kCols; ++j) {
      acc[r][j] = init ? mul(set1(init[r]), load(c + r * ldc + j * kW)) : zero();
    }
  }
  for (int k = k0; k < k1; ++k) {
    Vec row[kCols];
    for (int j = 0; j < kCols; ++j) row[j] = load(b + k * ldb + j * kW);
    for (int r = 0; r < R; ++r) {
      const Vec x = set1(a[r * lda + k]);
      for (int j = 0; j < kCols; ++j) acc[r][j] = fma(x, row[j], acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kCols; ++j) store(c + r * ldc + j * kW, acc[r][j]);
  }
}

constexpr int kMicroRows = kW == 16 ? 12 : 3;  // accumulators fill the register file

template <int R, class T>
inline void product32_rows(int rows, const float* a, int64_t lda, const T* b, int64_t ldb, int k0,
                           int k1, float* c, int64_t ldc, const float* init) {
  if constexpr (R > 0) {
    if (rows == R) return product32<R>(a, lda, b, ldb, k0, k1, c, ldc, init);
    product32_rows<R - 1>(rows, a, lda, b, ldb, k0, k1, c, ldc, init);
  }
}

struct Range {
  int begin;
  int end;
};

template <class T>
class Attention {
 public:
  Attention(const AttentionTask& task, float* scratch)
      : t_(task), head_dim_(task.head_dim), d_(padded_head_dim(task.head_dim)) {
    rows_ = t_.num_tokens * t_.group;
    q_ = scratch;
    out_ = q_ + kTileRows * d_;
    total_ = out_ + kTileRows * d_;
    scores_ = total_ + kTileRows * d_;
    max_ = scores_ + kTileRows * kBlockTokens;
    sum_ = max_ + kTileRows;
    fade_ = sum_ + kTileRows;
    total_max_ = fade_ + kTileRows;
    total_sum_ = total_max_ + kTileRows;
  }

  void run() {
    load_queries();
    const int last = t_.first_position + t_.num_tokens - 1;
    const int first_block = first_key(t_.first_position) / kBlockTokens;
    reset(0, rows_, out_, max_, sum_);
    reset(0, rows_, total_, total_max_, total_sum_);
    for (int b = first_block; b <= last / kBlockTokens; ++b) {
      if (b % kChunkBlocks == 0 && b != first_block) merge_chunk();
      block(b);
    }
    merge_chunk();
    write_out();
  }

 private:
  int first_key(int position) const {
    return t_.window > 0 ? std::max(0, position - t_.window + 1) : 0;
  }
  int position(int row) const { return t_.first_position + row / t_.group; }

  // Keys of block b that row sees, as offsets in the block; empty if begin >= end.
  Range visible(int row, int b) const {
    const int p = position(row), base = b * kBlockTokens;
    return {std::max(0, first_key(p) - base), std::min(kBlockTokens, p + 1 - base)};
  }

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      const float* q = t_.q + (r / t_.group) * t_.ldq + (r % t_.group) * head_dim_;
      scale_rows(q, q_ + r * d_, head_dim_, t_.scale);
    }
  }

  void reset(int begin, int end, float* out, float* max_row, float* sum_row) {
    std::fill(out + begin * d_, out + end * d_, 0.0f);
    std::fill(max_row + begin, max_row + end, -std::numeric_limits<float>::infinity());
    std::fill(sum_row + begin, sum_row + end, 0.0f);
  }

  void block(int b) {
    const T* k = reinterpret_cast<const T*>(t_.kv + t_.blocks[b] * t_.block_stride);
    const T* v = k + d_ * kBlockTokens;
    for (int r = 0; r < rows_; r += kMicroRows) {
      const int n = std::min(kMicroRows, rows_ - r);
      Range span = {kBlockTokens, 0};
      for (int i = r; i < r + n; ++i) {
        const Range x = visible(i, b);
        if (x.begin >= x.end) continue;
        span = {std::min(span.begin, x.begin), std::max(span.end, x.end)};
      }
      if (span.begin >= span.end) continue;
      product32_rows<kMicroRows>(n, q_ + r * d_, d_, k, kBlockTokens, 0,
                                 static_cast<int>(head_dim_), scores_ + r * kBlockTokens,
                                 kBlockTokens, nullptr);
      for (int i = r; i < r + n; ++i) softmax_row(i, visible(i, b));
      for (int64_t c = 0; c < d_; c += kBlockTokens) {
        product32_rows<kMicroRows>(n, scores_ + r * kBlockTokens, kBlockTokens, v + c, d_,
                                   span.begin, span.end, out_ + r * d_ + c, d_, fade_ + r);
      }
    }
  }

  // scores -> probabilities against the running maximum; fade_ is what earlier sums shrink by.
  void softmax_row(int row, Range seen) {
    float* s = scores_ + row * kBlockTokens;
    if (seen.begin >= seen.end) {
      std::fill(s, s + kBlockTokens, 0.0f);
      fade_[row] = 1.0f;
      return;
    }
    if (t_.softcap > 0) softcap(s, s, kBlockTokens, t_.softcap);
    std::fill(s, s + seen.begin, -std::numeric_limits<float>::infinity());
    std::fill(s + seen.end, s + kBlockTokens, -std::numeric_limits<float>::infinity());
    Vec m = load(s);
    for (int j = 1; j < kCols; ++j) m = max(m, load(s + j * kW));
    const float new_max = std::max(max_[row], reduce_max(m));
    float fade[kW];
    store(fade, exp_vec(set1(max_[row] - new_max)));
    const Vec shift = set1(new_max);
    for (int j = 0; j < kCols; ++j) store(s + j * kW, exp_vec(sub(load(s + j * kW), shift)));
    std::fill(s, s + seen.begin, 0.0f);
    std::fill(s + seen.end, s + kBlockTokens, 0.0f);
    Vec total = load(s);
    for (int j = 1; j < kCols; ++j) total = add(total, load(s + j * kW));
    max_[row] = new_max;
    fade_[row] = fade[0];
    sum_[row] = sum_[row] * fade[0] + reduce_add(total);
  }

  // Adds the chunk's partial sums to the total and starts a new chunk. A chunk is 512 keys at fixed
  // positions, so the order of additions is the same however the work was cut.
  void merge_chunk() {
    for (int r = 0; r < rows_; ++r) {
      if (sum_[r] == 0.0f) continue;  // saw no key of this chunk
      const float top = std::max(total_max_[r], max_[r]);
      float a[kW], b[kW];
      store(a, exp_vec(set1(total_max_[r] - top)));
      store(b, exp_vec(set1(max_[r] - top)));
      if (total_sum_[r] == 0.0f) a[0] = 0.0f;
      const Vec va = set1(a[0]), vb = set1(b[0]);
      map2(total_ + r * d_, out_ + r * d_, total_ + r * d_, d_,
           [&](Vec x, Vec y) { return fma(y, vb, mul(x, va)); });
      total_sum_[r] = total_sum_[r] * a[0] + sum_[r] * b[0];
      total_max_[r] = top;
    }
    reset(0, rows_, out_, max_, sum_);
  }

  void write_out() {
    for (int r = 0; r < rows_; ++r) {
      float* out = t_.out + (r / t_.group) * t_.ldo + (r % t_.group) * head_dim_;
      scale_rows(total_ + r * d_, out, head_dim_, 1.0f / total_sum_[r]);
    }
  }

  const AttentionTask& t_;
  int64_t head_dim_;
  int64_t d_;  // padded
  int rows_;
  float *q_, *out_, *total_, *scores_, *max_, *sum_, *fade_, *total_max_, *total_sum_;
};

void attend(const AttentionTask& task, KvType type, float* scratch) {
  if (type == KvType::kF32) return Attention<float>(task, scratch).run();
  if (type == KvType::kF16) return Attention<uint16_t>(task, scratch).run();
  Attention<Bf16>(task, scratch).run();
}

}  // namespace

extern const RuntimeKernels OCTAVO_KERNELS;
const RuntimeKernels OCTAVO_KERNELS = {
    OCTAVO_KERNELS_NAME, rms_norm, silu_mul, gelu_mul, silu, gelu, softcap, add_rows, mul_rows,
    scale_rows,          rope,     kv_write, attend};

}  // namespace octavo
