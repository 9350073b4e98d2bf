// Tile products of bf16: tiles 0 to 3 are sums; 4 and 5 hold activations, 6 and 7 weights.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/amx_tiles.h"
#include "kernels/bf16_lines_zmm.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

constexpr int kSums = kAmxRows * kPanelRows;

constexpr std::array<TileShapes, kAmxRows> product_shapes() {
  std::array<TileShapes, kAmxRows> all;
  for (int rows = 1; rows <= kAmxRows; ++rows) {
    TileShapes& shapes = all[static_cast<size_t>(rows - 1)];
    for (int i = 0; i < 6; ++i) shapes.shape(i, rows, kAmxBytes);
    for (int i = 6; i < 8; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  }
  return all;
}

void open_products(int rows) {
  static constexpr std::array<TileShapes, kAmxRows> kShapes = product_shapes();
  open_tiles(kShapes[static_cast<size_t>(rows - 1)]);
}

template <int i>
OCTAVO_INLINE void zero_sums() {
  if constexpr (i == 0) OCTAVO_TILE_ZERO(0);
  if constexpr (i == 1) OCTAVO_TILE_ZERO(1);
  if constexpr (i == 2) OCTAVO_TILE_ZERO(2);
  if constexpr (i == 3) OCTAVO_TILE_ZERO(3);
}

template <int i>
OCTAVO_INLINE void load_sums(const float* at) {
  if constexpr (i == 0) OCTAVO_TILE_LOAD(0, at, 64);
  if constexpr (i == 1) OCTAVO_TILE_LOAD(1, at, 64);
  if constexpr (i == 2) OCTAVO_TILE_LOAD(2, at, 64);
  if constexpr (i == 3) OCTAVO_TILE_LOAD(3, at, 64);
}

template <int i>
OCTAVO_INLINE void store_sums(float* at) {
  if constexpr (i == 0) OCTAVO_TILE_STORE(0, at, 64);
  if constexpr (i == 1) OCTAVO_TILE_STORE(1, at, 64);
  if constexpr (i == 2) OCTAVO_TILE_STORE(2, at, 64);
  if constexpr (i == 3) OCTAVO_TILE_STORE(3, at, 64);
}

template <int i>
OCTAVO_INLINE void load_rows(const uint8_t* rows) {
  if constexpr (i == 0) OCTAVO_TILE_LOAD(4, rows, 64);
  if constexpr (i == 1) OCTAVO_TILE_LOAD(5, rows, 64);
}

template <int i>
OCTAVO_INLINE void load_weights(const uint8_t* lines) {
  if constexpr (i % 2 == 0) OCTAVO_TILE_LOAD(6, lines, 64);
  if constexpr (i % 2 == 1) OCTAVO_TILE_LOAD(7, lines, 64);
}

// Sums of tile `r` of P panels, of R tiles of rows: place r * P + p.
template <int R, int P, int r, int p>
OCTAVO_INLINE void multiply_add() {
  constexpr int at = r * P + p;
  if constexpr (at == 0) OCTAVO_TILE_ADD_BF16(0, 4, 6);
  if constexpr (at == 1 && r == 0) OCTAVO_TILE_ADD_BF16(1, 4, 7);
  if constexpr (at == 1 && r == 1) OCTAVO_TILE_ADD_BF16(1, 5, 6);
  if constexpr (at == 2 && r == 0) OCTAVO_TILE_ADD_BF16(2, 4, 6);
  if constexpr (at == 2 && r == 1) OCTAVO_TILE_ADD_BF16(2, 5, 6);
  if constexpr (at == 3 && r == 0) OCTAVO_TILE_ADD_BF16(3, 4, 7);
  if constexpr (at == 3 && r == 1) OCTAVO_TILE_ADD_BF16(3, 5, 7);
}

// One group: rows of R tiles, `tile_stride` apart, by P unpacked panels, `panel_stride` apart.
template <int R, int P>
OCTAVO_INLINE void multiply_group(const uint8_t* rows, size_t tile_stride, const uint8_t* lines,
                                  size_t panel_stride) {
  load_rows<0>(rows);
  load_weights<0>(lines);
  multiply_add<R, P, 0, 0>();
  if constexpr (R > 1) {
    load_rows<1>(rows + tile_stride);
    multiply_add<R, P, 1, 0>();
  }
  if constexpr (P > 1) {
    load_weights<1>(lines + panel_stride);
    multiply_add<R, P, 0, 1>();
    if constexpr (R > 1) multiply_add<R, P, 1, 1>();
  }
  if constexpr (P > 2) {
    load_weights<2>(lines + 2 * panel_stride);
    multiply_add<R, P, 0, 2>();
    load_weights<3>(lines + 3 * panel_stride);
    multiply_add<R, P, 0, 3>();
  }
}

// Rows of a tile that are wanted go from sums to results.
OCTAVO_INLINE void write_rows(const ProductArgs& a, int64_t tile, int64_t panel,
                              const float* sums) {
  const uint8_t* at = a.matrix.data + static_cast<size_t>(panel) * a.matrix.panel_bytes;
  const __m512 unit = unit_of(at, a.matrix.panel_bytes);
  const int64_t valid = std::min<int64_t>(kPanelRows, a.matrix.n - panel * kPanelRows);
  const __mmask16 mask = static_cast<__mmask16>((1 << valid) - 1);
  const int64_t first = tile * a.x.tile;
  const int64_t begin = std::max(first, a.row_begin);
  const int64_t end = std::min(first + a.x.tile, a.row_end);
  float* out = a.out + panel * kPanelRows;
  for (int64_t r = begin; r < end; ++r) {
    const __m512 stored = _mm512_loadu_ps(sums + (r - first) * kPanelRows);
    const __m512 sum = _mm512_mul_ps(stored, _mm512_set1_ps(kSumUnit));
    _mm512_mask_storeu_ps(out + r * a.ldo, mask, _mm512_mul_ps(sum, unit));
  }
}

}  // namespace
}  // namespace octavo
