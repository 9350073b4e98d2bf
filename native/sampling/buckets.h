// How the largest of many numbers are found without sorting them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

namespace octavo {

// Largest k-th value that a row with these block maxima is sure to reach: at least k elements are
// not smaller. -inf if there are fewer blocks than k.
inline float lower_bound_of_top(const float* block_max, int64_t blocks, int64_t k, float* work) {
  if (k > blocks) return -std::numeric_limits<float>::infinity();
  std::copy(block_max, block_max + blocks, work);
  std::nth_element(work, work + (k - 1), work + blocks, std::greater<float>());
  return work[k - 1];
}

// Weights lie in (0, 1]. A bucket holds those that share the exponent and four bits of mantissa.
constexpr int kWeightBuckets = (0x3F800000 >> 19) + 1;

inline int32_t weight_bucket(float w) {
  int32_t bits;
  std::memcpy(&bits, &w, sizeof bits);
  return bits >> 19;
}

// The least weight of a bucket.
inline float weight_of_bucket(int32_t bucket) {
  const int32_t bits = bucket << 19;
  float w;
  std::memcpy(&w, &bits, sizeof w);
  return w;
}

}  // namespace octavo
