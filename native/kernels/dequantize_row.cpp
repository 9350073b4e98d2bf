#include "kernels/dequantize_row.h"

#include <cmath>
#include <cstring>

#include "kernels/file_type.h"
#include "kernels/format.h"
#include "kernels/half.h"
#include "kernels/wide.h"

namespace octavo {
namespace {

// The scale of a column half (0 or 1) of a group and the number added to scale * element.
template <SourceType T>
void group_terms(const uint8_t* block, int group, int half, float* scale, float* add) {
  using F = Format<Block<T>::kPanel>;
  *add = 0.0f;
  if constexpr (F::kFloatHead) {
    *scale = float_scale<T>(block);
    if constexpr (F::kHalvesFloat) *scale *= small_e4m3(half_scale_byte<T>(block, group, half));
    return;
  }
  *scale = load_half(block_scale<T>(block));
  if constexpr (F::kZeros) {
    *add = -(*scale * static_cast<float>(zero_point<T>(block)));
  } else if constexpr (F::kMin) {
    *add = load_half(block_scale<T>(block) + 2);
  }
  if constexpr (F::kScales == Scales::kSuperMin) {
    uint8_t sc = 0;
    uint8_t min = 0;
    super_scale_min(block, group, &sc, &min);
    *scale *= static_cast<float>(sc);
    *add = -(*add * static_cast<float>(min));
  } else if constexpr (F::kScales == Scales::kSuper) {
    *scale *= static_cast<float>(static_cast<int8_t>(super_scale(block, group)));
  } else if constexpr (F::kScales == Scales::kPower) {
    *scale = power_scale(block[0]);
  } else if constexpr (F::kHalvesMin) {
    const uint8_t both = half_scale_byte<T>(block, group, half);
    *scale *= static_cast<float>(both & 15);
    *add = -(load_half(block_scale<T>(block) + 2) * static_cast<float>(both >> 4));
  } else if constexpr (F::kScales == Scales::kHalves) {
    *scale *= static_cast<float>(static_cast<int8_t>(half_scale_byte<T>(block, group, half)));
  }
}

// A group as whole numbers q (the zero point taken off).
template <SourceType T>
void group_numbers(const uint8_t* block, int group, int (&out)[kGroup]) {
  using F = Format<Block<T>::kPanel>;
  uint8_t elements[kGroup];
  block_elements<T>(block, group, elements);
  for (int i = 0; i < kGroup; ++i) {
    if constexpr (kIsWide<Block<T>::kPanel>) {
      out[i] = wide_number<Block<T>::kPanel>(elements[i]);
    } else if constexpr (F::kCodes) {
      out[i] = F::kValues[elements[i]];
    } else {
      out[i] = elements[i] - F::kZeroPoint;
    }
  }
}

template <SourceType T>
void dequantize_group(const uint8_t* block, int group, float* out) {
  using F = Format<Block<T>::kPanel>;
  int q[kGroup];
  group_numbers<T>(block, group, q);
  for (int half = 0; half < 2; ++half) {
    float scale = 0.0f;
    float add = 0.0f;
    group_terms<T>(block, group, half, &scale, &add);
    for (int i = half * 16; i < half * 16 + 16; ++i) {
      const float product = scale * static_cast<float>(q[i]);
      out[i] = F::kMin || F::kHalvesMin ? product + add : product;
    }
  }
}

template <SourceType T>
void dequantize_table_group(const uint8_t* block, int group, float* out) {
  const float d = table_block_scale<T>(block);
  for (int eighth = 0; eighth < 4; ++eighth) {
    uint8_t codes[8];
    table_codes<T>(block, group, eighth, codes);
    const float scale = d * static_cast<float>(table_half_scale<T>(block, group, eighth / 2));
    for (int i = 0; i < 8; ++i) {
      out[eighth * 8 + i] = scale * static_cast<float>(table_values<T>()[codes[i]]);
    }
  }
}

template <SourceType T>
void dequantize(const uint8_t* row, int64_t k, float* out) {
  constexpr int kGroups = Block<T>::kColumns / kGroup;
  for (int64_t g = 0; g < k / kGroup; ++g, out += kGroup) {
    const uint8_t* block = row + static_cast<size_t>(g / kGroups) * Block<T>::kBytes;
    const int group = static_cast<int>(g % kGroups);
    if constexpr (Block<T>::kPanel == SourceType::kTable) {
      dequantize_table_group<T>(block, group, out);
    } else {
      dequantize_group<T>(block, group, out);
    }
  }
}

void dequantize_q8_k(const uint8_t* block, float* out) {
  const float d = load_as<float>(block);
  for (int i = 0; i < 256; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[4 + i]));
}

void dequantize_e5m2(const uint8_t* block, float* out) {
  const float d = load_as<float>(block);
  for (int i = 0; i < kGroup; ++i) out[i] = e5m2_to_float(block[4 + i]) * d;
}

template <typename T>
void convert(const uint8_t* row, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    out[i] = static_cast<float>(load_as<T>(row + static_cast<size_t>(i) * sizeof(T)));
  }
}

}  // namespace

int block_columns(SourceType file) {
  return block_shape(file).columns;
}

void dequantize_row(SourceType file, const uint8_t* row, int64_t k, float* out) {
  switch (file) {
    case SourceType::kF32:
      std::memcpy(out, row, static_cast<size_t>(k) * 4);
      return;
    case SourceType::kF16:
      for (int64_t i = 0; i < k; ++i) out[i] = load_half(row + i * 2);
      return;
    case SourceType::kBF16:
      for (int64_t i = 0; i < k; ++i) out[i] = bfloat_to_float(load_as<uint16_t>(row + i * 2));
      return;
    case SourceType::kF64:
      return convert<double>(row, k, out);
    case SourceType::kI8:
      return convert<int8_t>(row, k, out);
    case SourceType::kI16:
      return convert<int16_t>(row, k, out);
    case SourceType::kI32:
      return convert<int32_t>(row, k, out);
    case SourceType::kI64:
      return convert<int64_t>(row, k, out);
    case SourceType::kQ8_K:
      for (int64_t i = 0; i < k / 256; ++i) dequantize_q8_k(row + i * 292, out + i * 256);
      return;
    case SourceType::kE5M2:
      for (int64_t i = 0; i < k / kGroup; ++i) dequantize_e5m2(row + i * 36, out + i * kGroup);
      return;
    default:
      with_block_type(file, [&]<SourceType T>() { dequantize<T>(row, k, out); });
  }
}

}  // namespace octavo
