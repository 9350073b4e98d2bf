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

// The largest element, in one pass.
Peak find_peak(const float* x, int64_t n);

// block_max[b] = largest element of block b.
void find_block_max(const float* x, int64_t n, float* block_max);

// w[i] = exp((x[i] - peak) / temperature), 0 where that is below `floor`; w is padded with zeros to
// whole blocks. Returns the sum; fills the maximum and sum of each block.
double softmax_weights(const float* x, int64_t n, float peak, float temperature, float floor,
                       float* w, float* block_max, double* block_sum);

// Sum of exp(x[i] - peak).
double sum_exp(const float* x, int64_t n, float peak);

// Number of elements that sort before (value, index): larger, or equal at a lower index.
int64_t count_before(const float* x, int64_t n, float value, int64_t index);

}  // namespace octavo
