// Vectorised passes over one row of logits. Written with the compiler's portable vectors of eight
// floats: the same bits on every instruction set. A row is cut into blocks of kScanBlock elements;
// what a pass learns per block lets later passes skip almost all of the row.
#pragma once

#include <cstdint>

namespace octavo {

constexpr int64_t kScanBlock = 64;

inline int64_t scan_blocks(int64_t n) {
  return (n + kScanBlock - 1) / kScanBlock;
}

struct Peak {
  float value = 0;     // the largest element; -inf if all are
  int64_t index = 0;   // its lowest index
  bool finite = true;  // no NaN and no +inf among the elements
};

// The largest element, in one pass; block_max[b] = largest element of block b.
Peak find_peak(const float* x, int64_t n, float* block_max);

// block_max[b] = largest element of block b.
void find_block_max(const float* x, int64_t n, float* block_max);

// What makes a weight of a logit: w = exp((x - peak) / temperature), 0 where that is below `floor`.
struct Weighing {
  float peak;
  float temperature;
  float floor;
};

// The weights of x[0, n), n <= kScanBlock; w[kScanBlock] is padded with zeros.
void block_weights(const float* x, int64_t n, const Weighing& how, float* w);

// most[b] = weight of the largest element of block b; with the factor kSlack no weight of the block
// is above it (two logits one step apart may round to weights in the wrong order).
constexpr float kSlack = 1.00001f;
void largest_weights(const float* block_max, int64_t blocks, const Weighing& how, float* most);

// Returns the sum of all weights; fills the sum of each block. Blocks without a weight are skipped.
double sum_weights(const float* x, int64_t n, const Weighing& how, const float* most,
                   double* block_sum);

// Sum of exp(x[i] - peak).
double sum_exp(const float* x, int64_t n, float peak);

// Number of elements that sort before (value, index): larger, or equal at a lower index.
int64_t count_before(const float* x, int64_t n, float value, int64_t index);

}  // namespace octavo
