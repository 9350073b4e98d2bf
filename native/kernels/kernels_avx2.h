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
int64_t int8_loop_avx2(int64_t loops);
int64_t f32_loop_avx2(int64_t loops);
int64_t read_loop_avx2(const uint8_t* data, size_t bytes);

}  // namespace octavo
