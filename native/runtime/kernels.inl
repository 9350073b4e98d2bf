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

// c[r][0:32] = (init ? init[r] * c[r][0:32] : 0) + sum over k in [k0, k1) of a[r][k] * b[k][0:32].
template <int R, class T>
inline void product32(const float* a, int64_t lda, const T* b, int64_t ldb, int k0, int k1,
                      float* c, int64_t ldc, const float* init) {
  Vec acc[R][kCols];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < kCols; ++j) {
      acc[r][j] = init ? mul(set1(init[r]), load(c + r * ldc + j * kW)) : zero();
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

// Numbers of 32 keys: those outside `seen` become `fill`.
inline void keep(float* x, Range seen, float fill) {
  if (seen.begin > 0) std::fill(x, x + std::min(seen.begin, kBlockTokens), fill);
  if (seen.end < kBlockTokens) std::fill(x + std::max(seen.end, 0), x + kBlockTokens, fill);
}

inline void prefetch(const void* p, int64_t bytes) {
  const char* c = static_cast<const char*>(p);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(c + i, 0, 2);
}

// How queries, keys and probabilities meet: float arithmetic on K [head_dim][32], V [32][head_dim].
template <class T>
struct PlainMath {
  static constexpr bool kPrefetches = false;
  using Query = float;        // [rows][padded head_dim]
  using Probability = float;  // [rows][32], in place of the scores
  static constexpr int64_t block_bytes(int64_t d) {
    return 2 * kBlockTokens * d * static_cast<int64_t>(sizeof(T));
  }

  static void load_query(const float* q, int64_t head_dim, int64_t, float scale, Query* out) {
    scale_rows(q, out, head_dim, scale);
  }
  static void scores(int rows, const Query* q, int64_t d, int64_t head_dim, const uint8_t* block,
                     float* out) {
    product32_rows<kMicroRows>(rows, q, d, reinterpret_cast<const T*>(block), kBlockTokens, 0,
                               static_cast<int>(head_dim), out, kBlockTokens, nullptr);
  }
  // Makes probabilities what `values` wants, for the keys that the row sees.
  static void weigh(float*, const uint8_t*, int64_t, Range) {}
  // out = fade * out + p V over the keys in span.
  static void values(int rows, const float* p, int64_t d, const uint8_t* block, Range span,
                     float* out, const float* fade) {
    const T* v = reinterpret_cast<const T*>(block) + d * kBlockTokens;
    for (int64_t c = 0; c < d; c += kBlockTokens) {
      product32_rows<kMicroRows>(rows, p, kBlockTokens, v + c, d, span.begin, span.end, out + c, d,
                                 fade);
    }
  }
};

}  // namespace
}  // namespace octavo

#include "runtime/attention_int8.inl"

namespace octavo {
namespace {

void kv_write(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at,
              KvType type) {
  if (type == KvType::kF32) return kv_write_as<float>(k, v, block, head_dim, at);
  if (type == KvType::kF16) return kv_write_as<uint16_t>(k, v, block, head_dim, at);
  if (type == KvType::kInt8) return kv_write_int8(k, v, block, head_dim, at);
  kv_write_as<Bf16>(k, v, block, head_dim, at);
}

template <class Math>
class Attention {
 public:
  Attention(const AttentionTask& task, float* scratch)
      : t_(task), head_dim_(task.head_dim), d_(padded_head_dim(task.head_dim)) {
    rows_ = t_.num_tokens * t_.group;
    q_ = reinterpret_cast<typename Math::Query*>(scratch);
    out_ = scratch + kTileRows * d_;
    total_ = out_ + kTileRows * d_;
    scores_ = total_ + kTileRows * d_;
    max_ = scores_ + kTileRows * kBlockTokens;
    sum_ = max_ + kTileRows;
    lane_sums_ = sum_ + kTileRows;
    fade_ = lane_sums_ + kTileRows * kW;
    total_max_ = fade_ + kTileRows;
    total_sum_ = total_max_ + kTileRows;
    for (int r = 0; r < rows_; ++r) {
      const int position = t_.first_position + r / t_.group;
      sees_[r] = {first_key(position), position + 1};
    }
  }

  // Everything at once.
  void run() {
    load_queries();
    begin_total();
    for (int c = first_chunk(); c <= last_chunk(); ++c) {
      chunk(c);
      merge(out_, max_, sum_);
    }
    write_out();
  }

  // One chunk's sums, to be merged later: [rows][padded head_dim], [rows] maxima, [rows] sums.
  void run_chunk(int c, float* partial) {
    load_queries();
    chunk(c);
    std::copy(out_, out_ + rows_ * d_, partial);
    std::copy(max_, max_ + rows_, partial + rows_ * d_);
    std::copy(sum_, sum_ + rows_, partial + rows_ * (d_ + 1));
  }

  // Merges the partial sums of all chunks, in order, exactly as run does.
  void run_merge(const float* partials) {
    begin_total();
    for (int c = first_chunk(); c <= last_chunk(); ++c, partials += rows_ * (d_ + 2)) {
      merge(partials, partials + rows_ * d_, partials + rows_ * (d_ + 1));
    }
    write_out();
  }

 private:
  int first_block() const { return sees_[0].begin / kBlockTokens; }
  int last_block() const { return (sees_[rows_ - 1].end - 1) / kBlockTokens; }
  int first_chunk() const { return first_block() / kChunkBlocks; }
  int last_chunk() const { return last_block() / kChunkBlocks; }

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      const float* q = t_.q + (r / t_.group) * t_.ldq + (r % t_.group) * head_dim_;
      Math::load_query(q, head_dim_, d_, t_.scale, q_ + r * d_);
    }
  }

  const uint8_t* block_at(int b) const { return t_.kv + t_.blocks[b] * t_.block_stride; }

  int first_key(int position) const {
    return t_.window > 0 ? std::max(0, position - t_.window + 1) : 0;
  }

  // Keys of block b that row sees, as offsets in the block; empty if begin >= end.
  Range visible(int row, int b) const {
    const int base = b * kBlockTokens;
    return {std::max(0, sees_[row].begin - base), std::min(kBlockTokens, sees_[row].end - base)};
  }

  // A chunk is 256 keys at fixed positions, reduced on its own: the order of additions is the same
  // however the work was cut.
  void chunk(int c) {
    std::fill(out_, out_ + rows_ * d_, 0.0f);
    std::fill(max_, max_ + rows_, -std::numeric_limits<float>::infinity());
    std::fill(lane_sums_, lane_sums_ + rows_ * kW, 0.0f);
    const int begin = std::max(first_block(), c * kChunkBlocks);
    const int end = std::min(last_block(), c * kChunkBlocks + kChunkBlocks - 1);
    for (int b = begin; b <= end; ++b) {
      block(b, b < last_block() ? block_at(b + 1) : nullptr);
    }
    for (int r = 0; r < rows_; ++r) sum_[r] = reduce_add(load(lane_sums_ + r * kW));
  }

  // next: the block after this one, or null. It is asked for in four parts between the
  // computations: a core has a few dozen lines under way at most, and waits if it asks for more.
  void block(int b, const uint8_t* next) {
    const uint8_t* kv = block_at(b);
    [[maybe_unused]] const int64_t part = Math::block_bytes(d_) / 4;
    for (int r = 0; r < rows_; r += kMicroRows, next = nullptr) {
      const int n = std::min(kMicroRows, rows_ - r);
      // A later token sees at least as far, and starts no earlier.
      Range span = {visible(r, b).begin, visible(r + n - 1, b).end};
      if (span.begin >= span.end) continue;
      float* scores = scores_ + r * kBlockTokens;
      if constexpr (Math::kPrefetches) {
        const int64_t ahead = next != nullptr ? next - kv : 0;
        Math::scores(n, q_ + r * d_, d_, head_dim_, kv, scores, ahead);
        softmax_rows(r, n, b);
        Math::values(n, scores, d_, kv, span, out_ + r * d_, fade_ + r, ahead);
      } else {
        if (next != nullptr) prefetch(next, part);
        Math::scores(n, q_ + r * d_, d_, head_dim_, kv, scores);
        if (next != nullptr) prefetch(next + part, part);
        softmax_rows(r, n, b);
        if (next != nullptr) prefetch(next + 2 * part, part);
        Math::values(n, scores, d_, kv, span, out_ + r * d_, fade_ + r);
        if (next != nullptr) prefetch(next + 3 * part, part);
      }
    }
  }

  // scores -> probabilities against the running maximum; fade_ is what earlier sums shrink by.
  void softmax_rows(int first, int n, int b) {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    float shrink[kMicroRows + kW] = {};
    for (int i = 0; i < n; ++i) {
      const int row = first + i;
      const Range seen = visible(row, b);
      float* s = scores_ + row * kBlockTokens;
      if (t_.softcap > 0) softcap(s, s, kBlockTokens, t_.softcap);
      keep(s, seen, kLowest);
      Vec m = load(s);
      for (int j = 1; j < kCols; ++j) m = max(m, load(s + j * kW));
      const float old = max_[row];
      max_[row] = std::max(old, reduce_max(m));
      shrink[i] = seen.begin < seen.end ? old - max_[row] : 0.0f;
    }
    for (int i = 0; i < n; i += kW) store(shrink + i, exp_vec(load(shrink + i)));
    for (int i = 0; i < n; ++i) {
      probabilities(first + i, visible(first + i, b), block_at(b), shrink[i]);
    }
  }

  void probabilities(int row, Range seen, const uint8_t* block, float fade) {
    float* s = scores_ + row * kBlockTokens;
    if (seen.begin >= seen.end) {  // sees nothing here: add nothing, shrink nothing
      std::fill(s, s + kBlockTokens, 0.0f);
      fade_[row] = 1.0f;
      Math::weigh(s, block, d_, seen);
      return;
    }
    const Vec shift = set1(max_[row]);
    for (int j = 0; j < kCols; ++j) store(s + j * kW, exp_vec(sub(load(s + j * kW), shift)));
    keep(s, seen, 0.0f);
    Vec total = load(s);
    for (int j = 1; j < kCols; ++j) total = add(total, load(s + j * kW));
    fade_[row] = fade;
    float* sums = lane_sums_ + row * kW;
    store(sums, fma(load(sums), set1(fade), total));
    Math::weigh(s, block, d_, seen);
  }

  void begin_total() { std::fill(total_sum_, total_sum_ + rows_, 0.0f); }

  // Adds a chunk's sums to the total.
  void merge(const float* out, const float* max_row, const float* sum_row) {
    for (int r = 0; r < rows_; ++r) {
      if (sum_row[r] == 0.0f) continue;  // saw no key of this chunk
      const float* row = out + r * d_;
      float* total = total_ + r * d_;
      if (total_sum_[r] == 0.0f) {
        std::copy(row, row + d_, total);
        total_sum_[r] = sum_row[r];
        total_max_[r] = max_row[r];
        continue;
      }
      const float top = std::max(total_max_[r], max_row[r]);
      float a[kW], b[kW];
      store(a, exp_vec(set1(total_max_[r] - top)));
      store(b, exp_vec(set1(max_row[r] - top)));
      const Vec va = set1(a[0]), vb = set1(b[0]);
      map2(total, row, total, d_, [&](Vec x, Vec y) { return fma(y, vb, mul(x, va)); });
      total_sum_[r] = total_sum_[r] * a[0] + sum_row[r] * b[0];
      total_max_[r] = top;
    }
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
  Range sees_[kTileRows];  // keys by row, counted from the sequence's start
  typename Math::Query* q_;
  float *out_, *total_, *scores_, *max_, *sum_, *lane_sums_, *fade_, *total_max_, *total_sum_;
};

// Calls f with the attention of the cache's type.
template <class F>
void with_attention(const AttentionTask& task, KvType type, float* scratch, F f) {
  if (type == KvType::kF32) return f(Attention<PlainMath<float>>(task, scratch));
  if (type == KvType::kF16) return f(Attention<PlainMath<uint16_t>>(task, scratch));
  if (type == KvType::kInt8) return f(Attention<Int8Math>(task, scratch));
  f(Attention<PlainMath<Bf16>>(task, scratch));
}

void attend(const AttentionTask& task, KvType type, float* scratch) {
  with_attention(task, type, scratch, [](auto&& a) { a.run(); });
}
void attend_chunk(const AttentionTask& task, KvType type, float* scratch, int chunk,
                  float* partial) {
  with_attention(task, type, scratch, [&](auto&& a) { a.run_chunk(chunk, partial); });
}
void attend_merge(const AttentionTask& task, KvType type, float* scratch, const float* partials) {
  with_attention(task, type, scratch, [&](auto&& a) { a.run_merge(partials); });
}

}  // namespace
}  // namespace octavo
