// Between the files of the AVX-512 set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernel_table.h"

namespace octavo {

constexpr int kFloatRowsAvx512 = 6;
constexpr int kStreamRowsAvx512 = 4;

FloatTileKernel float_kernel_avx512(PanelLayout layout, int rows);
void quantize_group_avx512(const float* x, int8_t* q, QuantizedRows::Terms* terms);
void quantize_four_avx512(const GroupPlace (&groups)[4]);
// Of up to kStreamRowsAvx512 rows.
StreamKernel stream_kernel_avx512(SourceType source, int rows, int64_t panels);
// Of wide formats. Without AVX-512 VBMI, which looks codes up, they are those of 256 bits.
QuantTileKernel wide_kernel_avx512(SourceType source, int rows);
StreamKernel wide_stream_avx512(SourceType source, int rows, int64_t panels);
ExpandedKernels wide_expanded_avx512(SourceType source);
QuantTileKernel e4m3_kernel_avx512vbmi(SourceType source, int rows);
StreamKernel e4m3_stream_avx512vbmi(SourceType source, int rows, int64_t panels);
ExpandedKernels e4m3_expanded_avx512vbmi(SourceType source);
// Unpacks groups as digits (wide.h) in lines of their own, then float scales[16]; the last digit
// signed or with 4 added.
ExpandFunction e4m3_expand_signed(SourceType source);
int64_t int8_loop_avx512(int64_t loops, int bits);
int64_t f32_loop_avx512(int64_t loops);
int64_t bf16_loop_avx512(int64_t loops);  // needs avx512bf16
int64_t read_loop_avx512(const uint8_t* data, size_t bytes);
int64_t read_near_loop_avx512(const uint8_t* data, size_t bytes);

}  // namespace octavo
