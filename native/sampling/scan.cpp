#include "sampling/scan.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace octavo {
namespace {

constexpr int64_t kLanes = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

typedef float Vec __attribute__((vector_size(32)));
typedef int32_t IntVec __attribute__((vector_size(32)));

inline Vec splat(float v) {
  return Vec{v, v, v, v, v, v, v, v};
}

inline Vec load(const float* x) {
  Vec v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

inline void store(float* x, Vec v) {
  std::memcpy(x, &v, sizeof v);
}

inline Vec max(Vec a, Vec b) {
  return a > b ? a : b;
}  // a NaN in a is passed over

inline float reduce_max(Vec v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline float reduce_add(Vec v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline int64_t reduce_add(IntVec v) {
  int64_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

// Calls f(pointer to kScanBlock floats, block) for each block; the last one is a copy padded with
// -inf, which no maximum, sum of exponentials or count sees.
template <typename F>
inline void for_blocks(const float* x, int64_t n, F&& f) {
  int64_t whole = n / kScanBlock;
  for (int64_t b = 0; b < whole; ++b) f(x + b * kScanBlock, b);
  int64_t rest = n - whole * kScanBlock;
  if (rest == 0) return;
  float tail[kScanBlock];
  for (int64_t i = 0; i < kScanBlock; ++i) tail[i] = i < rest ? x[whole * kScanBlock + i] : -kInf;
  f(tail, whole);
}

// exp(x) for x <= 0, within 2 units in the last place; 0 below -87.3. Splits x = n ln2 + r and
// takes Cephes' minimax polynomial for exp(r) on |r| <= ln2 / 2.
inline Vec exp_nonpositive(Vec x) {
  const Vec lowest = splat(-87.3f);
  IntVec alive = x >= lowest;
  Vec y = alive ? x : lowest;
  const Vec shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  Vec biased = y * splat(1.44269504f) + shift;
  Vec n = biased - shift;
  Vec r = y - n * splat(0.693359375f) - n * splat(-2.12194440e-4f);
  Vec p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * r * r + r + splat(1.0f);
  IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return alive ? p * scale : splat(0.0f);
}

inline Vec weigh(Vec x, const Weighing& how) {
  const Vec w = exp_nonpositive((x - splat(how.peak)) / splat(how.temperature));
  return w >= splat(how.floor) ? w : splat(0.0f);
}

}  // namespace

Peak find_peak(const float* x, int64_t n, float* block_max) {
  Peak peak{-kInf, 0, true};
  int64_t best = -1;
  IntVec bad = {};
  for_blocks(x, n, [&](const float* block, int64_t b) {
    Vec m = splat(-kInf);
    for (int64_t i = 0; i < kScanBlock; i += kLanes) {
      Vec v = load(block + i);
      bad |= v != v;
      m = max(v, m);
    }
    float value = reduce_max(m);
    block_max[b] = value;
    if (value > peak.value) {
      peak.value = value;
      best = b;
    }
  });
  peak.finite = reduce_add(bad) == 0 && peak.value < kInf;
  if (best >= 0) {
    peak.index = best * kScanBlock;
    while (x[peak.index] != peak.value) ++peak.index;
  }
  return peak;
}

void find_block_max(const float* x, int64_t n, float* block_max) {
  for_blocks(x, n, [&](const float* block, int64_t b) {
    Vec m = splat(-kInf);
    for (int64_t i = 0; i < kScanBlock; i += kLanes) m = max(load(block + i), m);
    block_max[b] = reduce_max(m);
  });
}

void block_weights(const float* x, int64_t n, const Weighing& how, float* w) {
  for_blocks(x, n, [&](const float* block, int64_t) {
    for (int64_t i = 0; i < kScanBlock; i += kLanes) store(w + i, weigh(load(block + i), how));
  });
}

void largest_weights(const float* block_max, int64_t blocks, const Weighing& how, float* most) {
  for_blocks(block_max, blocks, [&](const float* block, int64_t b) {
    float w[kScanBlock];
    for (int64_t i = 0; i < kScanBlock; i += kLanes) {
      Weighing unbounded = how;
      unbounded.floor = 0;
      store(w + i, weigh(load(block + i), unbounded));
    }
    const int64_t count = std::min(kScanBlock, blocks - b * kScanBlock);
    std::copy(w, w + count, most + b * kScanBlock);
  });
}

double sum_weights(const float* x, int64_t n, const Weighing& how, const float* most,
                   double* block_sum) {
  double total = 0;
  for_blocks(x, n, [&](const float* block, int64_t b) {
    block_sum[b] = 0;
    if (most[b] <= 0 || most[b] * kSlack < how.floor) return;
    Vec sum = splat(0.0f);
    for (int64_t i = 0; i < kScanBlock; i += kLanes) sum += weigh(load(block + i), how);
    block_sum[b] = reduce_add(sum);
    total += block_sum[b];
  });
  return total;
}

double sum_exp(const float* x, int64_t n, float peak) {
  double total = 0;
  const Vec top = splat(peak);
  for_blocks(x, n, [&](const float* block, int64_t) {
    Vec sum = splat(0.0f);
    for (int64_t i = 0; i < kScanBlock; i += kLanes) sum += exp_nonpositive(load(block + i) - top);
    total += reduce_add(sum);
  });
  return total;
}

int64_t count_before(const float* x, int64_t n, float value, int64_t index) {
  const Vec bound = splat(value);
  IntVec larger = {};  // comparisons give -1
  for_blocks(x, n, [&](const float* block, int64_t) {
    for (int64_t i = 0; i < kScanBlock; i += kLanes) larger += load(block + i) > bound;
  });
  int64_t equal = 0;
  for (int64_t i = 0; i < index; ++i) equal += x[i] == value;
  return equal - reduce_add(larger);
}

}  // namespace octavo
