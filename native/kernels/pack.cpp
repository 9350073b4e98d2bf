// File rows -> panels.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/block.h"
#include "kernels/dequantize_row.h"
#include "kernels/format.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

// One group of the panel as bytes, [8 column quads][16 rows][4].
struct GroupBytes {
  alignas(64) uint8_t quads[8][64];
};

// Lays the 32 elements of one row into its 4 bytes of each column quad.
inline void scatter_row(const uint8_t* elements, int row, GroupBytes& group) {
  for (int j = 0; j < 8; ++j) std::memcpy(group.quads[j] + row * 4, elements + j * 4, 4);
}

template <SourceType S>
inline void write_lines(const GroupBytes& group, uint8_t* dst) {
  using F = Format<S>;
  if constexpr (F::kBytesOnly) {
    std::memcpy(dst, group.quads, 512);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    for (int b = 0; b < 64; ++b) {
      dst[i * 64 + b] = static_cast<uint8_t>((group.quads[2 * i][b] & 15) |
                                             (group.quads[2 * i + 1][b] & 15) << 4);
    }
  }
  uint8_t* planes = dst + 256;
  constexpr int kBits = F::kPlanes;  // bits above the nibble, also the number of planes
  constexpr int kQuads = kBits == 0 ? 1 : 8 / kBits;
  for (int h = 0; h < kBits; ++h) {
    for (int b = 0; b < 64; ++b) {
      uint8_t bits = 0;
      for (int j = 0; j < kQuads; ++j) {
        bits = static_cast<uint8_t>(bits | (group.quads[h * kQuads + j][b] >> 4) << (j * kBits));
      }
      planes[h * 64 + b] = bits;
    }
  }
}

// Copies one row's scales of one group to their places in the tail.
template <SourceType S>
inline void write_tail(const uint8_t* block, int group, int row, uint8_t* tail) {
  using F = Format<S>;
  if constexpr (F::kScales == Scales::kSuperMin) {
    super_scale_min(block, group, tail + row, tail + 16 + row);
  } else if constexpr (F::kScales == Scales::kHalves) {
    tail[row] = half_scales(block, group)[0];
    tail[16 + row] = half_scales(block, group)[1];
  } else {
    std::memcpy(tail + row * 2, block_scale<S>(block), 2);
    if (F::kMin) std::memcpy(tail + 32 + row * 2, block_scale<S>(block) + 2, 2);
  }
}

template <SourceType S>
inline void write_head(const uint8_t* block, int row, uint8_t* head) {
  using F = Format<S>;
  if constexpr (F::kSuperBlock) {
    std::memcpy(head + row * 2, block_scale<S>(block), 2);
    if (F::kMin) std::memcpy(head + 32 + row * 2, block_scale<S>(block) + 2, 2);
  }
}

// rows: the panel's first row in the file; num_rows: how many exist (the rest are zeros).
template <SourceType S>
void pack_panel(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  using F = Format<S>;
  const size_t row_bytes = source_row_bytes(S, m.k);
  const int64_t blocks = m.k / F::kBlock;
  std::memset(dst + static_cast<size_t>(blocks) * kSuperBytes<S>, 0,
              m.panel_bytes - static_cast<size_t>(blocks) * kSuperBytes<S>);
  GroupBytes group;
  if (num_rows < kPanelRows) std::memset(&group, 0, sizeof(group));
  uint8_t elements[kGroup];
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* super = dst + static_cast<size_t>(b) * kSuperBytes<S>;
    if (num_rows < kPanelRows) std::memset(super, 0, kSuperBytes<S>);
    const uint8_t* source = rows + static_cast<size_t>(b) * F::kBlockBytes;
    for (int r = 0; r < num_rows; ++r) write_head<S>(source + r * row_bytes, r, super);
    for (int g = 0; g < F::kSuper; ++g) {
      uint8_t* out = super + F::kHead + g * kGroupBytes<S>;
      for (int r = 0; r < num_rows; ++r) {
        const uint8_t* block = source + r * row_bytes;
        block_elements<S>(block, g, elements);
        scatter_row(elements, r, group);
        write_tail<S>(block, g, r, out + F::kElementBytes);
      }
      write_lines<S>(group, out);
    }
  }
}

// 16-bit floats, as half_index tells.
void pack_panel_16(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(m.source, m.k);
  std::memset(dst, 0, m.panel_bytes);
  for (int64_t k = 0; k < m.k; ++k) {
    for (int r = 0; r < num_rows; ++r) {
      const uint8_t* row = rows + r * row_bytes;
      std::memcpy(dst + half_index(m.layout, k, r) * 2, row + k * 2, 2);
    }
  }
}

// Floats as [k][16 rows], a stretch of columns at a time so that both sides stay in cache.
void pack_panel_32(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(m.source, m.k);
  std::vector<float> row(static_cast<size_t>(m.k));
  float* out = reinterpret_cast<float*>(dst);
  if (num_rows < kPanelRows) std::memset(dst, 0, m.panel_bytes);
  for (int r = 0; r < num_rows; ++r) {
    dequantize_row(m.source, rows + r * row_bytes, m.k, row.data());
    for (int64_t k = 0; k < m.k; ++k) out[k * kPanelRows + r] = row[static_cast<size_t>(k)];
  }
}

void pack_one(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  switch (m.layout) {
    case PanelLayout::kF32:
      return pack_panel_32(m, rows, num_rows, dst);
    case PanelLayout::kF16:
    case PanelLayout::kBF16:
      return pack_panel_16(m, rows, num_rows, dst);
    default:
      with_format(m.source, [&]<SourceType S>() { pack_panel<S>(m, rows, num_rows, dst); });
  }
}

}  // namespace

void pack_panels(const PanelMatrix& matrix, const uint8_t* rows, int64_t begin, int64_t end,
                 uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(matrix.source, matrix.k);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t first = p * kPanelRows;
    const int num_rows = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.n - first));
    pack_one(matrix, rows + static_cast<size_t>(first) * row_bytes, num_rows,
             dst + static_cast<size_t>(p) * matrix.panel_bytes);
  }
}

}  // namespace octavo
