// The vector type of kernels on any other processor: 8 floats the compiler may vectorise.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/half.h"
#include "runtime/simd_bf16.h"

namespace octavo::simd {

struct Vec {
  static constexpr int kWidth = 8;
  float v[8];
};

template <class F>
inline Vec map(F f) {
  Vec r;
  for (int i = 0; i < 8; ++i) r.v[i] = f(i);
  return r;
}
inline Vec load(const float* p) {
  return map([&](int i) { return p[i]; });
}
inline Vec load(const uint16_t* p) {
  return map([&](int i) { return half_to_float(p[i]); });
}
inline Vec load(const Bf16* p) {
  return map([&](int i) { return bf16_to_float(p[i]); });
}
inline Vec load(const int8_t* p) {
  return map([&](int i) { return static_cast<float>(p[i]); });
}
inline void store(float* p, const Vec& a) {
  for (int i = 0; i < 8; ++i) p[i] = a.v[i];
}
inline void store(uint16_t* p, const Vec& a) {
  for (int i = 0; i < 8; ++i) p[i] = float_to_half(a.v[i]);
}
inline Vec zero() {
  return map([](int) { return 0.0f; });
}
inline Vec set1(float x) {
  return map([=](int) { return x; });
}
inline Vec add(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec sub(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec mul(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec div(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline Vec max(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec min(const Vec& a, const Vec& b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec round(const Vec& a) {
  return map([&](int i) { return std::nearbyint(a.v[i]); });
}
inline Vec scale2(const Vec& x, const Vec& n) {
  return map([&](int i) { return std::ldexp(x.v[i], static_cast<int>(n.v[i])); });
}
// Lanes outside [begin, end), both in [0, 8], become `fill`.
inline Vec keep_lanes(const Vec& a, int begin, int end, float fill) {
  return map([&](int i) { return i >= begin && i < end ? a.v[i] : fill; });
}
// Of p[0], p[1], ...: each twice.
inline Vec load_twice(const float* p) {
  return map([&](int i) { return p[i / 2]; });
}
// Even and odd lanes change places.
inline Vec swap_pairs(const Vec& a) {
  return map([&](int i) { return a.v[i ^ 1]; });
}
// a - b in even lanes, a + b in odd ones.
inline Vec sub_add(const Vec& a, const Vec& b) {
  return map([&](int i) { return i % 2 == 0 ? a.v[i] - b.v[i] : a.v[i] + b.v[i]; });
}
inline float reduce_add(const Vec& a) {
  return ((a.v[0] + a.v[4]) + (a.v[2] + a.v[6])) + ((a.v[1] + a.v[5]) + (a.v[3] + a.v[7]));
}
inline float reduce_max(const Vec& a) {
  float m = a.v[0];
  for (int i = 1; i < 8; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}

}  // namespace octavo::simd
