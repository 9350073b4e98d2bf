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
  if constexpr (S == SourceType::kQ4_1) {
    *scale = load_half(block);
    *add = load_half(block + 2);
  } else if constexpr (S == SourceType::kQ4_K) {
    uint8_t sc = 0;
    uint8_t min = 0;
    q4k_scale_min(block, group, &sc, &min);
    *scale = load_half(block) * static_cast<float>(sc);
    *add = -(load_half(block + 2) * static_cast<float>(min));
  } else if constexpr (S == SourceType::kQ6_K) {
    const auto sc = static_cast<int8_t>(block[192 + group * 2 + half]);
    *scale = load_half(block + 208) * static_cast<float>(sc);
    *add = 0.0f;
  } else {
    *scale = load_half(block);
    *add = 0.0f;
  }
}

template <SourceType S>
void dequantize(const uint8_t* row, int64_t k, float* out) {
  using F = Format<S>;
  constexpr int kZero = F::kZeroBits < 0 ? 0 : 1 << F::kZeroBits;
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
        const float product = scale * static_cast<float>(elements[i] - kZero);
        out[i] = F::kMin ? product + add : product;
      }
    }
  }
}

}  // namespace

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
