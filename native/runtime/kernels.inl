// Bodies of RuntimeKernels, compiled once per instruction set after a simd_*.h that defines
// simd::Vec. Every function treats each row by itself with one order of additions, so a row's bits
// do not depend on what else is computed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

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

// x * Phi(x); erf by Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7.
inline Vec gelu_erf_vec(Vec x) {
  const Vec below = min(x, sub(zero(), x));  // -|x|
  const Vec t = div(set1(1.0f), fma(below, set1(-0.3275911f * 0.70710678f), set1(1.0f)));
  Vec poly = fma(t, set1(1.061405429f), set1(-1.453152027f));
  poly = fma(poly, t, set1(1.421413741f));
  poly = fma(poly, t, set1(-0.284496736f));
  poly = fma(poly, t, set1(0.254829592f));
  // tail: 1 - Phi(|x|)
  const Vec tail = mul(mul(poly, mul(t, set1(0.5f))), exp_vec(mul(mul(x, x), set1(-0.5f))));
  return fma(below, tail, max(x, zero()));
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
void gelu_erf_mul(float* gate, const float* up, int64_t n) {
  map2(gate, up, gate, n, [](Vec g, Vec u) { return mul(gelu_erf_vec(g), u); });
}
void clamped_swiglu(float* gate, const float* up, int64_t n, float alpha, float limit) {
  const Vec a = set1(-alpha), most = set1(limit), least = set1(-limit), one = set1(1.0f);
  map2(gate, up, gate, n, [&](Vec g, Vec u) {
    g = min(g, most);
    u = min(max(u, least), most);
    return mul(div(g, add(one, exp_vec(mul(a, g)))), add(u, one));
  });
}
void silu(const float* x, float* out, int64_t n) {
  map1(x, out, n, silu_vec);
}
void gelu(const float* x, float* out, int64_t n) {
  map1(x, out, n, gelu_vec);
}
void gelu_erf(const float* x, float* out, int64_t n) {
  map1(x, out, n, gelu_erf_vec);
}
void tanh_rows(const float* x, float* out, int64_t n) {
  map1(x, out, n, tanh_vec);
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

void add_scaled(float* out, const float* x, int64_t n, float factor) {
  const Vec f = set1(factor);
  map2(out, x, out, n, [&](Vec a, Vec b) { return fma(b, f, a); });
}

void rope(float* head, const float* cs, int64_t half, bool interleaved) {
  const float* c = cs;
  const float* s = cs + half;
  const int64_t step = interleaved ? 2 : 1;
  const int64_t other = interleaved ? 1 : half;
  int64_t i = 0;
  for (; !interleaved && i + kW <= half; i += kW) {
    const Vec a = load(head + i), b = load(head + half + i);
    const Vec cosine = load(c + i), sine = load(s + i);
    store(head + i, sub(mul(a, cosine), mul(b, sine)));
    store(head + half + i, add(mul(b, cosine), mul(a, sine)));
  }
  for (; interleaved && i + kW / 2 <= half; i += kW / 2) {
    const Vec x = load(head + 2 * i);
    store(head + 2 * i, sub_add(mul(x, load_twice(c + i)), mul(swap_pairs(x), load_twice(s + i))));
  }
  for (; i < half; ++i) {
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

}  // namespace
}  // namespace octavo

#include "runtime/attention_plain.inl"
//
#include "runtime/attention_latent.inl"
//
#include "runtime/attention_int8.inl"
//
#include "runtime/attention_latent_int8.inl"
//
#include "runtime/attention_int4.inl"
//
#include "runtime/attention.inl"
