// A row of a panel back as float32: the embedding look-up on a tied table.
#include <cstring>
#include <stdexcept>

#include "kernels/format.h"
#include "kernels/group.h"
#include "kernels/half.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

template <SourceType S>
void unpack(const uint8_t* panel, int64_t k, int r, float* out) {
  using F = Format<S>;
  for (int64_t g = 0; g < k / kGroup; ++g, out += kGroup) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    for (int half = 0; half < 2; ++half) {
      float scale = 0.0f;
      float min = 0.0f;
      group_scale<S>(head, group, r, half, &scale, &min);
      for (int c = half * 16; c < half * 16 + 16; ++c) {
        const float product =
            scale * static_cast<float>(group_factor<S>(head, group, r, c) - F::kZeroPoint);
        out[c] = F::kMin || F::kHalvesMin ? product + min : product;
      }
    }
  }
}

}  // namespace

void unpack_row(const PanelMatrix& matrix, int64_t row, float* out) {
  const uint8_t* panel = matrix.data + static_cast<size_t>(row / kPanelRows) * matrix.panel_bytes;
  const int r = static_cast<int>(row % kPanelRows);
  switch (matrix.layout) {
    case PanelLayout::kF32:
      for (int64_t k = 0; k < matrix.k; ++k) {
        std::memcpy(out + k, panel + (k * kPanelRows + r) * 4, 4);
      }
      return;
    case PanelLayout::kF16:
      for (int64_t k = 0; k < matrix.k; ++k) {
        out[k] = load_half(panel + half_index(matrix.layout, k, r) * 2);
      }
      return;
    case PanelLayout::kBF16:
      for (int64_t k = 0; k < matrix.k; ++k) {
        out[k] = bfloat_to_float(load_as<uint16_t>(panel + half_index(matrix.layout, k, r) * 2));
      }
      return;
    case PanelLayout::kE5M2:
      for (int64_t k = 0; k < matrix.k; ++k) {
        const uint8_t* group = e5m2_group(panel, k);
        out[k] = e5m2_to_float(group[e5m2_codes(k) + r]) * load_as<float>(group + r * 4);
      }
      return;
    default:
      with_format(matrix.source, [&]<SourceType S>() { unpack<S>(panel, matrix.k, r, out); });
  }
}

}  // namespace octavo
