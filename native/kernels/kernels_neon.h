// Between the files of the NEON set: Armv8.2 with the dot product extension.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/kernel_table.h"

namespace octavo {

constexpr int kFloatRowsNeon = 3;

FloatTileKernel float_kernel_neon(PanelLayout layout, int rows);
QuantTileKernel wide_kernel_neon(SourceType source, int rows);
void quantize_group_neon(const float* x, int8_t* q, QuantizedRows::Terms* terms);
int64_t int8_loop_neon(int64_t loops, int bits);
int64_t f32_loop_neon(int64_t loops);
int64_t read_loop_neon(const uint8_t* data, size_t bytes);

}  // namespace octavo
