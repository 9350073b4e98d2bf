// Products of wide formats with AVX-512: with VBMI, which looks up 128 bytes at once, or on 256
// bits as the smaller sets have them.
#include "kernels/kernels_avx512.h"

#if defined(__AVX512VNNI__)

#include <array>
#include <utility>

namespace octavo {
namespace {

bool has_vbmi() {
  static const bool has = __builtin_cpu_supports("avx512vbmi");
  return has;
}

constexpr int kSmallRows = 6;  // of the kernels of 256 bits

template <SourceType S, int T>
void small_tiles(const QuantTileArgs& a) {
  constexpr int kFirst = T > kSmallRows ? T / 2 : T;
  const auto kernel = avx512vl_kernels().quant;
  kernel(S, kFirst)(a);
  if constexpr (kFirst < T) {
    QuantTileArgs rest = a;
    rest.q += kFirst * kGroup;
    rest.terms += kFirst * sizeof(QuantizedRows::Terms);
    rest.out += kFirst * a.ldo;
    kernel(S, T - kFirst)(rest);
  }
}

template <SourceType S, int... T>
QuantTileKernel small_kernel(int rows, std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{small_tiles<S, T + 1>...};
  return kTiles[static_cast<size_t>(rows - 1)];
}

constexpr int kMostRows = 16;  // of a tile, in AMX's table

}  // namespace

QuantTileKernel wide_kernel_avx512(SourceType source, int rows) {
  if (has_vbmi()) return e4m3_kernel_avx512vbmi(source, rows);
  constexpr auto kRows = std::make_integer_sequence<int, kMostRows>{};
  return source == SourceType::kE4M3 ? small_kernel<SourceType::kE4M3>(rows, kRows)
                                     : small_kernel<SourceType::kE4M3_32>(rows, kRows);
}

StreamKernel wide_stream_avx512(SourceType source, int rows, int64_t panels) {
  if (has_vbmi()) return e4m3_stream_avx512vbmi(source, rows, panels);
  return {wide_kernel_avx512(source, rows), 1};
}

ExpandedKernels wide_expanded_avx512(SourceType source) {
  if (has_vbmi()) return e4m3_expanded_avx512vbmi(source);
  return avx512vl_kernels().expanded(source, 0);  // the same for any number of rows
}

}  // namespace octavo

#endif
