// Timing of the products and of the machine's limits, for benchmarks/kernels.py and
// benchmarks/roofline.py.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/panel.h"

namespace octavo {

// Best rate of multiplications and additions of int8 by weights of `bits` bits with `threads`
// threads, operations a second. Without a dot product of bytes the rate depends on the bits: how
// many products can be added in 16 bits before they are widened.
double measure_int8_peak(int threads, int bits);

// The same for float32 multiply-adds, and for bf16 dot products (0: no such instruction in use).
double measure_f32_peak(int threads);
double measure_bf16_peak(int threads);

// Best rate at which `threads` threads read `bytes` on huge (2 MB) or small (4 kB) pages, bytes a
// second.
double measure_read_speed(int64_t bytes, int threads, bool huge_pages);

// Seconds of each of `repeats` products of `rows` rows of activations (already quantized) with a
// random matrix, multiplied so (bf16: only where has_bf16_products()). The matrix is repeated until
// the copies fill `footprint` bytes and each product takes the next copy, so that weights come from
// memory if the footprint is larger than the caches.
std::vector<double> measure_linear(SourceType source, int64_t n, int64_t k, bool as_float,
                                   int64_t rows, int threads, int64_t footprint, int repeats,
                                   Products products);

}  // namespace octavo
