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

// A tile of activations is multiplied in halves, the first of so many rows; up to kAmxRows rows are
// one half.
constexpr int half_rows(int tile) {
  return tile <= kAmxRows ? tile : (tile + 1) / 2;
}
OCTAVO_INLINE size_t half_bytes(const QuantizedRows& x) {
  return static_cast<size_t>(half_rows(x.tile)) * kAmxBytes;
}

constexpr std::array<TileShapes, 2 * kAmxRows> product_shapes() {
  std::array<TileShapes, 2 * kAmxRows> all;
  for (int tile = 1; tile <= 2 * kAmxRows; ++tile) {
    TileShapes& shapes = all[static_cast<size_t>(tile - 1)];
    const int first = half_rows(tile), second = tile - first;
    for (int i = 0; i < 4; ++i) shapes.shape(i, i < 2 || second == 0 ? first : second, kAmxBytes);
    shapes.shape(4, first, kAmxBytes);
    shapes.shape(5, second, second == 0 ? 0 : kAmxBytes);
    for (int i = 6; i < 8; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  }
  return all;
}

void open_products(int tile) {
  static constexpr std::array<TileShapes, 2 * kAmxRows> kShapes = product_shapes();
  open_tiles(kShapes[static_cast<size_t>(tile - 1)]);
}

// passing: they are not read again soon.
template <int i, bool passing>
OCTAVO_INLINE void load_rows(const uint8_t* rows) {
  if constexpr (passing) {
    tile_load_passing<4 + i>(rows, 64);
  } else {
    tile_load<4 + i>(rows, 64);
  }
}

template <int i>
OCTAVO_INLINE void load_weights(const uint8_t* lines) {
  tile_load<6 + i % 2>(lines, 64);
}

// The i-th sums of R halves by P panels, half after half, and the tile that holds them.
template <int R, int P, int i>
constexpr int kSumTile = R == 2 ? i / P * 2 + i % P : i;

template <int R, int P>
OCTAVO_INLINE void zero_all_sums() {
  each_of<R * P>([]<int i>() { tile_zero<kSumTile<R, P, i>>(); });
}
template <int R, int P>
OCTAVO_INLINE void load_all_sums(const float (*sums)[kSums]) {
  each_of<R * P>([&]<int i>() { tile_load_passing<kSumTile<R, P, i>>(sums[i], 64); });
}
template <int R, int P>
OCTAVO_INLINE void store_all_sums(float (*sums)[kSums]) {
  each_of<R * P>([&]<int i>() { tile_store<kSumTile<R, P, i>>(sums[i], 64); });
}

// Half r by panel p of P.
template <int R, int P, int r, int p>
OCTAVO_INLINE void multiply_add() {
  tile_add_bf16<kSumTile<R, P, r * P + p>, 4 + r, 6 + p % 2>();
}

// One group: R halves of a tile, half_bytes apart, by P unpacked panels, panel_stride apart.
template <int R, int P, bool passing = false>
OCTAVO_INLINE void multiply_group(const uint8_t* rows, size_t half_bytes, const uint8_t* lines,
                                  size_t panel_stride) {
  load_rows<0, passing>(rows);
  load_weights<0>(lines);
  multiply_add<R, P, 0, 0>();
  if constexpr (R > 1) {
    load_rows<1, passing>(rows + half_bytes);
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

struct RowRange {
  int64_t begin;
  int64_t end;
};

// The rows of a tile's half.
OCTAVO_INLINE RowRange rows_of(const QuantizedRows& x, int64_t tile, int half) {
  const int64_t first = tile * x.tile, second = first + half_rows(x.tile);
  return half == 0 ? RowRange{first, std::min(second, x.rows)}
                   : RowRange{second, std::max(second, std::min(first + x.tile, x.rows))};
}

// A row's sums as results.
OCTAVO_INLINE __m512 result(__m512 sums, __m512 unit) {
  return _mm512_mul_ps(_mm512_mul_ps(sums, _mm512_set1_ps(kSumUnit)), unit);
}

// The wanted rows of a tile's half go from sums to results.
OCTAVO_INLINE void write_rows(const ProductArgs& a, int64_t tile, int half, int64_t panel,
                              const float* sums) {
  const uint8_t* at = a.matrix.data + static_cast<size_t>(panel) * a.matrix.panel_bytes;
  const __m512 unit = unit_of(at, a.matrix.panel_bytes);
  const int64_t valid = std::min<int64_t>(kPanelRows, a.matrix.n - panel * kPanelRows);
  const __mmask16 mask = static_cast<__mmask16>((1 << valid) - 1);
  const RowRange rows = rows_of(a.x, tile, half);
  const int64_t begin = std::max(rows.begin, a.row_begin), end = std::min(rows.end, a.row_end);
  const int64_t column = panel * kPanelRows;
  for (int64_t r = begin; r < end; ++r) {
    __m512 y = result(_mm512_load_ps(sums + (r - rows.begin) * kPanelRows), unit);
    if (a.residual.data != nullptr) {
      const float* more = a.residual.data + r * a.residual.ld + column;
      y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, more), y);
    }
    _mm512_mask_storeu_ps(a.out + r * a.ldo + column, mask, y);
  }
}

}  // namespace
}  // namespace octavo
