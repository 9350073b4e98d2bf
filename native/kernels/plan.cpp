// Sizes: of a row in the file, of a packed matrix, of quantized activations.
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/file_type.h"
#include "kernels/format.h"
#include "kernels/kernel_table.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

[[noreturn]] void refuse(const std::string& got, const std::string& expected) {
  throw std::invalid_argument("panels: got " + got + "; expected " + expected);
}

void check_columns(int64_t k, int64_t block) {
  if (k <= 0 || k % block != 0) {
    refuse("rows of " + std::to_string(k) + " columns",
           "a positive multiple of " + std::to_string(block) + " for this weight type");
  }
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

PanelMatrix float_plan(PanelMatrix m) {
  const size_t width = m.layout == PanelLayout::kF32 ? 4 : 2;
  const size_t columns = round_up(static_cast<size_t>(m.k), m.layout == PanelLayout::kF32 ? 1 : 2);
  m.panel_bytes = columns * width * kPanelRows;
  return m;
}

}  // namespace

SourceType panel_type(SourceType file) {
  switch (file) {
    case SourceType::kF16:
    case SourceType::kBF16:
    case SourceType::kE5M2:
      return file;
    default:
      break;
  }
  if (block_shape(file).columns == 0) {
    refuse("weight type " + std::to_string(static_cast<int>(file)), "a type of GGUF's blocks");
  }
  SourceType type = SourceType::kF32;
  with_block_type(file, [&]<SourceType T>() { type = Block<T>::kPanel; });
  return type;
}

size_t source_row_bytes(SourceType file, int64_t k) {
  panel_type(file);  // throws if it is not known
  const BlockShape block = block_shape(file);
  check_columns(k, block.columns);
  return static_cast<size_t>(k / block.columns) * static_cast<size_t>(block.bytes);
}

PanelMatrix plan_panels(SourceType file, int64_t n, int64_t k, bool as_float, bool for_bf16) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (n <= 0 || n > kMost || k > kMost) {
    refuse("a matrix of " + std::to_string(n) + " x " + std::to_string(k), "1 to 2^31-1 each way");
  }
  source_row_bytes(file, k);  // throws if it cannot be packed
  PanelMatrix m;
  m.file = file;
  m.source = as_float ? SourceType::kF32 : panel_type(file);
  m.n = n;
  m.k = k;
  m.num_panels = (n + kPanelRows - 1) / kPanelRows;
  const bool quantized = with_format(m.source, [&]<SourceType S>() {
    m.layout = Format<S>::kLayout;
    m.panel_bytes = round_up(groups_bytes<S>(k / kGroup), 64);
    m.for_bf16 = for_bf16 && has_bf16_products();
    if (m.for_bf16) m.panel_bytes += bf16_kernels()->trailer_bytes;
  });
  if (quantized) return m;
  if (m.source == SourceType::kE5M2) {
    m.layout = PanelLayout::kE5M2;
    m.panel_bytes = static_cast<size_t>(k / kGroup) * kE5m2GroupBytes;
    return m;
  }
  m.layout = m.source == SourceType::kF16    ? PanelLayout::kF16
             : m.source == SourceType::kBF16 ? PanelLayout::kBF16
                                             : PanelLayout::kF32;
  return float_plan(m);
}

namespace {

const KernelTable& table_of(Products products) {
  return products == Products::kBf16 ? *bf16_kernels() : kernels();
}

// Rows of a tile such that the tiles come out even: 13 rows are 7 + 6, not 12 + 1.
int64_t even_tile(int64_t rows, int64_t most) {
  const int64_t tiles = (rows + most - 1) / most;
  return tiles == 0 ? 1 : (rows + tiles - 1) / tiles;
}

}  // namespace

size_t QuantizedRows::bytes(int64_t rows, int64_t k, Products products) {
  // Room for any tile size that `in` may choose for fewer rows too, and for kernels that read the
  // elements of a whole tile where there are fewer rows.
  const size_t groups = static_cast<size_t>((k + kGroup - 1) / kGroup);
  const size_t row_bytes = in(nullptr, 1, k, products).row_bytes();
  return round_up(static_cast<size_t>(rows + kMaxTile) * groups * row_bytes + kBeyond, 64);
}

size_t QuantizedRows::exact_bytes(int64_t rows, int64_t k, Products products) {
  const QuantizedRows x = in(nullptr, rows, k, products);
  return static_cast<size_t>((rows + x.tile - 1) / x.tile) * x.tile_stride();
}

size_t QuantizedRows::most_bytes(int64_t rows, int64_t k, Products products) {
  // A part of r rows has ceil(r / most) tiles, and fewer empty rows than that.
  const int64_t most = table_of(products).tile_rows;
  return exact_bytes(1, k, products) * static_cast<size_t>(rows + rows / most);
}

QuantizedRows QuantizedRows::in(void* memory, int64_t rows, int64_t k, Products products) {
  QuantizedRows x;
  x.k = k;
  x.rows = rows;
  x.groups = (k + kGroup - 1) / kGroup;
  x.tile = static_cast<int>(even_tile(rows, table_of(products).tile_rows));
  x.bf16 = products == Products::kBf16;
  x.data = static_cast<uint8_t*>(memory);
  return x;
}

}  // namespace octavo
