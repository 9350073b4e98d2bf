// Products and quantization above the instruction sets: which tile comes when.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/kernel_table.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

// Quantized activations that stay in L2 (1 MB on current servers) beside a block of weights.
constexpr int64_t kChunkBytes = 384 * 1024;

// Calls f(first row, rows) for pieces of [begin, end) that never cross a tile of `tile` rows and
// have at most `most` rows, as even as they come.
template <typename F>
void for_row_pieces(int64_t begin, int64_t end, int64_t tile, int64_t most, F&& f) {
  while (begin < end) {
    const int64_t left = std::min(tile - begin % tile, end - begin);
    const int64_t pieces = (left + most - 1) / most;
    const int64_t rows = (left + pieces - 1) / pieces;
    f(begin, static_cast<int>(rows));
    begin += rows;
  }
}

// Rows of activations that are streamed past each block of panels: a multiple of the tile.
int64_t chunk_rows(const QuantizedRows& x) {
  const int64_t tiles = kChunkBytes / static_cast<int64_t>(x.tile_stride());
  return std::max<int64_t>(tiles, 2) * x.tile;
}

// One panel by rows [row_begin, row_end).
void quant_panel(const KernelTable& table, const PanelMatrix& m, const QuantizedRows& x,
                 int64_t row_begin, int64_t row_end, int64_t panel, float* out, int64_t ldo) {
  const int64_t first = panel * kPanelRows;
  QuantTileArgs args{};
  args.panel = m.data + static_cast<size_t>(panel) * m.panel_bytes;
  args.groups = x.groups;
  args.group_stride = x.group_stride();
  args.ldo = ldo;
  args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, m.n - first));
  for_row_pieces(row_begin, row_end, x.tile, table.quant_rows, [&](int64_t row, int rows) {
    args.q = reinterpret_cast<const uint8_t*>(x.q(row, 0));
    args.terms = reinterpret_cast<const uint8_t*>(x.terms(row, 0));
    args.out = out + row * ldo + first;
    table.quant(m.source, rows)(args);
  });
}

}  // namespace

void linear_q8(const PanelMatrix& matrix, const QuantizedRows& x, int64_t row_begin,
               int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo) {
  const KernelTable& table = kernels();
  const int64_t chunk = chunk_rows(x);
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t next = std::min(row_end, row - row % x.tile + chunk);
    for (int64_t p = panel_begin; p < panel_end; ++p) {
      quant_panel(table, matrix, x, row, next, p, out, ldo);
    }
    row = next;
  }
}

void linear_f32(const PanelMatrix& matrix, const float* x, int64_t ldx, int64_t row_begin,
                int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo) {
  const KernelTable& table = kernels();
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    FloatTileArgs args{};
    args.panel = matrix.data + static_cast<size_t>(p) * matrix.panel_bytes;
    args.k = matrix.k;
    args.ldx = ldx;
    args.ldo = ldo;
    args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.n - p * kPanelRows));
    for_row_pieces(row_begin, row_end, row_end, table.float_rows, [&](int64_t row, int rows) {
      args.x = x + row * ldx;
      args.out = out + row * ldo + p * kPanelRows;
      table.floats(matrix.layout, rows)(args);
    });
  }
}

void quantize_groups(const float* x, QuantizedRows& out, int64_t row, int64_t group_begin,
                     int64_t group_end) {
  const KernelTable& table = kernels();
  for (int64_t g = group_begin; g < group_end; ++g) {
    const float* source = x + g * kGroup;
    float padded[kGroup];
    const int64_t left = out.k - g * kGroup;
    if (left < kGroup) {
      std::memset(padded, 0, sizeof(padded));
      std::memcpy(padded, source, static_cast<size_t>(left) * sizeof(float));
      source = padded;
    }
    table.quantize_group(source, out.q(row, g), out.terms(row, g));
  }
}

}  // namespace octavo
