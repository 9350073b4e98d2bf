#include "kernels/dequantize_row.h"

#include <cstring>

#include "kernels/block.h"
#include "kernels/format.h"
#include "kernels/half.h"

namespace octavo {
namespace {

// The scale of a column half (0 or 1) of a group and the number added to scale * element.
template <SourceType S>
void group_terms(const uint8_t* block, int group, int half, float* scale, float* add) {
  using F = Format<S>;
  *scale = load_half(block_scale<S>(block));
  *add = F::kMin ? load_half(block_scale<S>(block) + 2) : 0.0f;
  if constexpr (F::kScales == Scales::kSuperMin) {
    uint8_t sc = 0;
    uint8_t min = 0;
    super_scale_min(block, group, &sc, &min);
    *scale *= static_cast<float>(sc);
    *add = -(*add * static_cast<float>(min));
  } else if constexpr (F::kScales == Scales::kHalves) {
    *scale *= static_cast<float>(static_cast<int8_t>(half_scales(block, group)[half]));
  }
}

template <SourceType S>
void dequantize(const uint8_t* row, int64_t k, float* out) {
  using F = Format<S>;
  uint8_t elements[kGroup];
  for (int64_t g = 0; g < k / kGroup; ++g, out += kGroup) {
    const uint8_t* block = row + static_cast<size_t>(g / F::kSuper) * F::kBlockBytes;
    const int group = static_cast<int>(g % F::kSuper);
    block_elements<S>(block, group, elements);
    for (int half = 0; half < 2; ++half) {
      float scale = 0.0f;
      float add = 0.0f;
      group_terms<S>(block, group, half, &scale, &add);
      for (int i = half * 16; i < half * 16 + 16; ++i) {
        const float product = scale * static_cast<float>(elements[i] - F::kZeroPoint);
        out[i] = F::kMin ? product + add : product;
      }
    }
  }
}

}  // namespace

int block_columns(SourceType source) {
  if (source == SourceType::kF32 || source == SourceType::kF16 || source == SourceType::kBF16) {
    return 1;
  }
  int columns = 0;
  with_format(source, [&]<SourceType S>() { columns = Format<S>::kBlock; });
  return columns;
}

void dequantize_row(SourceType source, const uint8_t* row, int64_t k, float* out) {
  switch (source) {
    case SourceType::kF32:
      std::memcpy(out, row, static_cast<size_t>(k) * 4);
      return;
    case SourceType::kF16:
      for (int64_t i = 0; i < k; ++i) out[i] = load_half(row + i * 2);
      return;
    case SourceType::kBF16:
      for (int64_t i = 0; i < k; ++i) out[i] = bfloat_to_float(load_as<uint16_t>(row + i * 2));
      return;
    default:
      with_format(source, [&]<SourceType S>() { dequantize<S>(row, k, out); });
  }
}

}  // namespace octavo
