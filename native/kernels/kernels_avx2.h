// Between the files of the AVX2 set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernel_table.h"

namespace octavo {

constexpr int kFloatRowsAvx2 = 3;

FloatTileKernel float_kernel_avx2(PanelLayout layout, int rows);
void quantize_group_avx2(const float* x, int8_t* q, QuantizedRows::Terms* terms);
// The same, but with each of the two negative sums as two 16-bit ones: of columns 0 and 1 of each 4
// in the low half, of 2 and 3 in the high one. That is how the AVX2 products want them.
void quantize_group_lanes(const float* x, int8_t* q, QuantizedRows::Terms* terms);
int64_t int8_loop_avx2(int64_t loops, int bits);
int64_t f32_loop_avx2(int64_t loops);
int64_t read_loop_avx2(const uint8_t* data, size_t bytes);

}  // namespace octavo
