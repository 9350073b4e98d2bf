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

// Groups of a panel that are unpacked at once.
constexpr int64_t kExpandedGroups = 64;

// Whether unpacking pays with so many rows of activations: soon where bits lie in two places, later
// for nibbles, never for bytes.
bool pays_to_expand(PanelLayout layout, int64_t rows) {
  return layout == PanelLayout::kU4 ? rows >= 48 : layout != PanelLayout::kU8 && rows >= 18;
}

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

// Rows of activations of `groups` groups that are streamed past each block of panels: a multiple of
// the tile.
int64_t chunk_rows(const QuantizedRows& x, int64_t groups) {
  const int64_t tile_bytes = groups * static_cast<int64_t>(x.group_stride());
  return std::max<int64_t>(kChunkBytes / tile_bytes, 2) * x.tile;
}

// One panel, or a part of its columns, by rows [row_begin, row_end).
struct PanelProduct {
  const KernelTable& table;
  const PanelMatrix& matrix;
  const QuantizedRows& x;
  float* out;
  int64_t ldo;

  // Groups [begin, end) of `panel`, unpacked at `memory` if that is not null.
  void run(int64_t row_begin, int64_t row_end, int64_t panel, int64_t begin, int64_t end,
           const uint8_t* memory) const {
    const int64_t first = panel * kPanelRows;
    QuantTileArgs args{};
    args.panel = memory == nullptr ? data(panel) : memory;
    args.groups = end - begin;
    args.group_stride = x.group_stride();
    args.ldo = ldo;
    args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.n - first));
    args.resume = begin > 0;
    for_row_pieces(row_begin, row_end, x.tile, table.quant_rows, [&](int64_t row, int rows) {
      args.q = reinterpret_cast<const uint8_t*>(x.q(row, begin));
      args.terms = reinterpret_cast<const uint8_t*>(x.terms(row, begin));
      args.out = out + row * ldo + first;
      const auto kernel = memory == nullptr ? table.quant(matrix.source, rows)
                                            : table.expanded(matrix.source, rows).tile;
      kernel(args);
    });
  }

  // The whole of panels [panel_begin, panel_end), as they are stored.
  void stored(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) const {
    const int64_t chunk = chunk_rows(x, x.groups);
    for (int64_t row = row_begin; row < row_end;) {
      const int64_t next = std::min(row_end, row - row % x.tile + chunk);
      for (int64_t p = panel_begin; p < panel_end; ++p) {
        run(row, next, p, 0, x.groups, nullptr);
      }
      row = next;
    }
  }

  // The same, a block of columns at a time, unpacked once for a chunk of rows.
  void expanded(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) const {
    alignas(64) static thread_local uint8_t memory[kExpandedGroups * kExpandedGroupBytes];
    const auto expand = table.expanded(matrix.source, 1).expand;
    const int64_t chunk = chunk_rows(x, std::min(x.groups, kExpandedGroups));
    for (int64_t row = row_begin; row < row_end;) {
      const int64_t next = std::min(row_end, row - row % x.tile + chunk);
      for (int64_t begin = 0; begin < x.groups; begin += kExpandedGroups) {
        const int64_t end = std::min(x.groups, begin + kExpandedGroups);
        for (int64_t p = panel_begin; p < panel_end; ++p) {
          expand(data(p), begin, end, memory);
          run(row, next, p, begin, end, memory);
        }
      }
      row = next;
    }
  }

  const uint8_t* data(int64_t panel) const {
    return matrix.data + static_cast<size_t>(panel) * matrix.panel_bytes;
  }
};

}  // namespace

void linear_q8(const PanelMatrix& matrix, const QuantizedRows& x, int64_t row_begin,
               int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo) {
  const KernelTable& table = kernels();
  const PanelProduct product{table, matrix, x, out, ldo};
  if (table.expanded != nullptr && pays_to_expand(matrix.layout, row_end - row_begin)) {
    product.expanded(row_begin, row_end, panel_begin, panel_end);
  } else {
    product.stored(row_begin, row_end, panel_begin, panel_end);
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
