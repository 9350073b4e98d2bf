// What the checks of arm_kernels.cpp share: counting, comparing, random numbers, aligned memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace octavo {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

inline std::mt19937 generator(1);
inline int comparisons = 0;
inline int failures = 0;

inline void expect(bool good, const std::string& what) {
  ++comparisons;
  if (good) return;
  if (++failures <= 20) std::printf("differs: %s\n", what.c_str());
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Largest difference as a part of the largest magnitude; NaN counts as infinite.
inline float distance(const Floats& got, const Floats& want) {
  float largest = 1e-30f;
  float worst = 0.0f;
  for (size_t i = 0; i < want.size(); ++i) {
    const float difference = std::fabs(got[i] - want[i]);
    largest = std::max(largest, std::fabs(want[i]));
    worst = difference <= worst ? worst : difference;
  }
  return worst <= largest ? worst / largest : std::numeric_limits<float>::infinity();
}

inline Floats random_floats(size_t n, float spread = 1.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  Floats x(n);
  for (float& v : x) v = normal(generator);
  for (size_t i = 5; i < n; i += 41) x[i] *= 30.0f;
  return x;
}

// Memory aligned as the kernels ask for.
class Aligned {
 public:
  explicit Aligned(size_t bytes)
      : memory_(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)),
                &std::free) {
    std::memset(memory_.get(), 0xff, bytes);  // NaN, where it is read before it is written
  }
  uint8_t* get() const { return memory_.get(); }

 private:
  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
};

void check_products();
void check_runtime();

}  // namespace octavo
