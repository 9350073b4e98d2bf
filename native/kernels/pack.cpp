// File rows -> panels.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/dequantize_row.h"
#include "kernels/file_type.h"
#include "kernels/format.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

// Writes the lowest four bytes as what row `row` has of a line.
inline void write_four(uint64_t bytes, int row, uint8_t* line) {
  const auto four = static_cast<uint32_t>(bytes);
  std::memcpy(line + row * 4, &four, 4);
}

// Writes fields of kWidth bits of a row's 32 elements, kept in bytes, eight column quads one above
// the other in as many lines as a field has bits. Two quads are in each of x.
template <int kWidth>
inline void write_fields(const std::array<uint64_t, 4>& x, int row, uint8_t* lines) {
  if constexpr (kWidth == 8) {
    for (int i = 0; i < 8; ++i) write_four(x[i / 2] >> i % 2 * 32, row, lines + i * 64);
  } else if constexpr (kWidth == 4) {
    for (int i = 0; i < 4; ++i) write_four(x[i] | x[i] >> 28, row, lines + i * 64);
  } else if constexpr (kWidth == 2) {
    for (int i = 0; i < 2; ++i) {
      const uint64_t quads = x[2 * i] | x[2 * i + 1] << 4;
      write_four(quads | quads >> 30, row, lines + i * 64);
    }
  } else {
    static_assert(kWidth == 1);
    const uint64_t quads = x[0] | x[1] << 2 | x[2] << 4 | x[3] << 6;
    write_four(quads | quads >> 31, row, lines);
  }
}

// Writes a row's 32 elements to its places in a group's lines and planes.
template <SourceType S>
inline void write_row(const uint8_t* elements, int row, uint8_t* dst) {
  using F = Format<S>;
  std::array<uint64_t, 4> low;
  std::memcpy(low.data(), elements, kGroup);
  if constexpr (F::kPlanes > 0) {
    std::array<uint64_t, 4> high;
    for (int i = 0; i < 4; ++i) {
      high[i] = low[i] >> F::kLineBits & eight_of((1 << F::kPlanes) - 1);
      low[i] &= eight_of((1 << F::kLineBits) - 1);
    }
    write_fields<F::kPlanes>(high, row, dst + F::kLines * 64);
  }
  write_fields<F::kLineBits>(low, row, dst);
}

// The elements of one row of a group, as the panel has them.
template <SourceType T>
inline void write_elements(const uint8_t* block, int group, uint8_t* out) {
  if constexpr (Block<T>::kPanel == SourceType::kTable) {
    for (int i = 0; i < 4; ++i) table_codes<T>(block, group, i, out + i * 8);
  } else {
    block_elements<T>(block, group, out);
  }
}

// Copies one row's scales of one group to their places in the tail.
template <SourceType T>
inline void write_tail(const uint8_t* block, int group, int row, uint8_t* tail) {
  using F = Format<Block<T>::kPanel>;
  if constexpr (F::kScales == Scales::kSuperMin) {
    super_scale_min(block, group, tail + row, tail + 16 + row);
  } else if constexpr (F::kTable) {
    for (int half = 0; half < 2; ++half) {
      tail[half * 16 + row] = static_cast<uint8_t>(table_half_scale<T>(block, group, half));
    }
  } else if constexpr (F::kHalves) {
    for (int half = 0; half < 2; ++half) {
      tail[half * 16 + row] = half_scale_byte<T>(block, group, half);
    }
  } else if constexpr (F::kScales == Scales::kSuper) {
    tail[row] = super_scale(block, group);
  } else if constexpr (F::kScales == Scales::kZero) {
    std::memcpy(tail + row * 2, block_scale<T>(block), 2);
    tail[32 + row] = static_cast<uint8_t>(zero_point<T>(block));
  } else if constexpr (F::kScales == Scales::kPower) {
    tail[row] = block[0];
  } else if constexpr (F::kTail > 0) {
    std::memcpy(tail + row * 2, block_scale<T>(block), 2);
    if (F::kMin) std::memcpy(tail + 32 + row * 2, block_scale<T>(block) + 2, 2);
  }
}

template <SourceType T>
inline void write_head(const uint8_t* block, int row, uint8_t* head) {
  using F = Format<Block<T>::kPanel>;
  if constexpr (F::kTable) {
    const float scale = table_block_scale<T>(block);
    std::memcpy(head + row * 4, &scale, 4);
    for (int i = 0; i < 16; ++i) {
      head[64 + i] = static_cast<uint8_t>(table_values<T>()[i] + F::kZeroPoint);
    }
  } else if constexpr (F::kFloatHead) {
    const float scale = float_scale<T>(block);
    std::memcpy(head + row * 4, &scale, 4);
  } else if constexpr (F::kHead > 0) {
    std::memcpy(head + row * 2, block_scale<T>(block), 2);
    if (F::kMin || F::kHalvesMin) {
      std::memcpy(head + 32 + row * 2, block_scale<T>(block) + 2, 2);
    }
  }
}

// rows: the panel's first row in the file; num_rows: how many exist (the rest are zeros).
template <SourceType T>
void pack_panel(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  constexpr SourceType S = Block<T>::kPanel;
  using F = Format<S>;
  constexpr int kBlockGroups = Block<T>::kColumns / kGroup;
  const size_t row_bytes = source_row_bytes(T, m.k);
  const int64_t groups = m.k / kGroup;
  const size_t used = groups_bytes<S>(groups);
  std::memset(dst + used, 0, m.panel_bytes - used);
  // The rows of the next panel lie behind: asked for in order, not in 16 rows at once as they are
  // read. (Nothing happens if there are none.)
  const uint8_t* ahead = rows + kPanelRows * row_bytes;
  const uint8_t* asked = ahead;
  uint8_t elements[kGroup];
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* ask = ahead + kPanelRows * row_bytes * static_cast<size_t>(g + 1) / groups;
    for (; asked < ask; asked += 64) __builtin_prefetch(asked);
    const uint8_t* source = rows + static_cast<size_t>(g / kBlockGroups) * Block<T>::kBytes;
    const int in_block = static_cast<int>(g % kBlockGroups);
    uint8_t* out = dst + group_offset<S>(g);
    if (g % F::kSuper == 0) {
      uint8_t* head = out - F::kHead;
      if (num_rows < kPanelRows) {
        const auto left = static_cast<size_t>(dst + used - head);
        std::memset(head, 0, std::min(kSuperBytes<S>, left));
      }
      for (int r = 0; r < num_rows; ++r) write_head<T>(source + r * row_bytes, r, head);
    }
    for (int r = 0; r < num_rows; ++r) {
      const uint8_t* block = source + r * row_bytes;
      write_elements<T>(block, in_block, elements);
      write_row<S>(elements, r, out);
      write_tail<T>(block, in_block, r, out + F::kElementBytes);
    }
  }
}

// Half-precision bits of a number that float16 holds exactly.
uint16_t exact_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude == 0) return sign;
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 113) {  // subnormal in float16
    const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return static_cast<uint16_t>(sign | mantissa >> (126 - exponent));
  }
  return static_cast<uint16_t>(sign | (magnitude - (112u << 23)) >> 13);
}

// Rows of numbers that float16 holds exactly, as 16-bit floats.
void pack_panel_exact(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(m.file, m.k);
  std::vector<float> row(static_cast<size_t>(m.k));
  std::memset(dst, 0, m.panel_bytes);
  for (int r = 0; r < num_rows; ++r) {
    dequantize_row(m.file, rows + r * row_bytes, m.k, row.data());
    for (int64_t k = 0; k < m.k; ++k) {
      const uint16_t half = exact_half(row[static_cast<size_t>(k)]);
      std::memcpy(dst + half_index(m.layout, k, r) * 2, &half, 2);
    }
  }
}

// 16-bit floats, as half_index tells.
void pack_panel_16(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(m.file, m.k);
  std::memset(dst, 0, m.panel_bytes);
  for (int64_t k = 0; k < m.k; ++k) {
    for (int r = 0; r < num_rows; ++r) {
      const uint8_t* row = rows + r * row_bytes;
      std::memcpy(dst + half_index(m.layout, k, r) * 2, row + k * 2, 2);
    }
  }
}

// Blocks of e5m2 floats: their scales, then their codes turned.
void pack_panel_e5m2(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const int64_t groups = m.k / kGroup;
  const auto block_bytes = static_cast<size_t>(block_shape(m.file).bytes);
  std::memset(dst, 0, m.panel_bytes);
  for (int64_t g = 0; g < groups; ++g, dst += kE5m2GroupBytes) {
    for (int r = 0; r < num_rows; ++r) {
      const uint8_t* block = rows + static_cast<size_t>(r * groups + g) * block_bytes;
      std::memcpy(dst + r * 4, block, 4);
      for (int c = 0; c < kGroup; ++c) dst[e5m2_codes(c) + r] = block[4 + c];
    }
  }
}

// Floats as [k][16 rows], a stretch of columns at a time so that both sides stay in cache.
void pack_panel_32(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(m.file, m.k);
  std::vector<float> row(static_cast<size_t>(m.k));
  float* out = reinterpret_cast<float*>(dst);
  if (num_rows < kPanelRows) std::memset(dst, 0, m.panel_bytes);
  for (int r = 0; r < num_rows; ++r) {
    dequantize_row(m.file, rows + r * row_bytes, m.k, row.data());
    for (int64_t k = 0; k < m.k; ++k) out[k * kPanelRows + r] = row[static_cast<size_t>(k)];
  }
}

void pack_one(const PanelMatrix& m, const uint8_t* rows, int num_rows, uint8_t* dst) {
  switch (m.layout) {
    case PanelLayout::kF32:
      return pack_panel_32(m, rows, num_rows, dst);
    case PanelLayout::kF16:
    case PanelLayout::kBF16:
      if (m.file != m.source) return pack_panel_exact(m, rows, num_rows, dst);
      return pack_panel_16(m, rows, num_rows, dst);
    case PanelLayout::kE5M2:
      return pack_panel_e5m2(m, rows, num_rows, dst);
    default:
      with_block_type(m.file, [&]<SourceType T>() { pack_panel<T>(m, rows, num_rows, dst); });
  }
}

}  // namespace

void pack_panels(const PanelMatrix& matrix, const uint8_t* rows, int64_t begin, int64_t end,
                 uint8_t* dst) {
  const size_t row_bytes = source_row_bytes(matrix.file, matrix.k);
  const auto finish = matrix.for_bf16 ? bf16_kernels()->finish_panel : nullptr;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t first = p * kPanelRows;
    const int num_rows = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.n - first));
    uint8_t* panel = dst + static_cast<size_t>(p) * matrix.panel_bytes;
    pack_one(matrix, rows + static_cast<size_t>(first) * row_bytes, num_rows, panel);
    if (finish != nullptr) finish(matrix, panel);
  }
}

}  // namespace octavo
