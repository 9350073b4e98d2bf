// The products in plain C++: what every other instruction set must equal, and all that a machine
// without a kernel of its own gets.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/format.h"
#include "kernels/group.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

template <SourceType S>
int dot(const uint8_t* head, const uint8_t* group, const int8_t* q, int r, int begin, int end) {
  int sum = 0;
  for (int c = begin; c < end; ++c) sum += group_factor<S>(head, group, r, c) * q[c];
  return sum;
}

using Terms = QuantizedRows::Terms;

const Terms* terms_of(const QuantTileArgs& a, int64_t group) {
  return reinterpret_cast<const Terms*>(a.terms + static_cast<size_t>(group) * a.group_stride);
}

const int8_t* q_of(const QuantTileArgs& a, int64_t group) {
  return reinterpret_cast<const int8_t*>(a.q + static_cast<size_t>(group) * a.group_stride);
}

template <SourceType S>
float quant_element(const QuantTileArgs& a, int r) {
  using F = Format<S>;
  float c = 0.0f;
  for (int64_t g = 0; g < a.groups; ++g) {
    const Terms* terms = terms_of(a, g);
    const uint8_t* head = a.panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = a.panel + group_offset<S>(g);
    float scale = 0.0f;
    float min = 0.0f;
    group_scale<S>(head, group, r, 0, &scale, &min);
    int sum = dot<S>(head, group, q_of(a, g), r, 0, kGroup);
    if constexpr (F::kZeroBits >= 0) sum += terms->neg_sum * F::kZeroPoint;
    c = std::fma(static_cast<float>(sum), scale * terms->scale, c);
    if constexpr (F::kMin) c = std::fma(min, terms->sum, c);
  }
  return c;
}

// The same where a block of groups shares a scale and a group's halves have int8 scales.
template <SourceType S>
float halves_element(const QuantTileArgs& a, int r) {
  using F = Format<S>;
  float c = 0.0f;
  for (int64_t first = 0; first < a.groups; first += F::kSuper) {
    const uint8_t* head = a.panel + static_cast<size_t>(first / F::kSuper) * kSuperBytes<S>;
    float s = 0.0f;
    float mins = 0.0f;
    for (int64_t g = first; g < std::min(first + F::kSuper, a.groups); ++g) {
      const Terms* terms = terms_of(a, g);
      const uint8_t* group = a.panel + group_offset<S>(g);
      const int neg[2] = {terms->neg_sum_first, terms->neg_sum - terms->neg_sum_first};
      float sum = 0.0f;
      int min = 0;
      for (int half = 0; half < 2; ++half) {
        int products = dot<S>(head, group, q_of(a, g), r, half * 16, half * 16 + 16);
        products += neg[half] * F::kZeroPoint;
        const auto scale = static_cast<float>(half_scale<S>(group, r, half));
        sum = std::fma(static_cast<float>(products), scale, sum);
        if (F::kHalvesMin) min += half_min<S>(group, r, half) * neg[half];
      }
      s = std::fma(sum, terms->scale, s);
      mins = std::fma(static_cast<float>(min), terms->scale, mins);
    }
    c = std::fma(s, head_scale<S>(head, r), c);
    if (F::kHalvesMin) c = std::fma(mins, load_half(head + 32 + r * 2), c);
  }
  return c;
}

template <SourceType S>
void quant_tile(const QuantTileArgs& a) {
  for (int r = 0; r < a.valid; ++r) {
    if constexpr (Format<S>::kHalves) {
      a.out[r] = halves_element<S>(a, r);
    } else {
      a.out[r] = quant_element<S>(a, r);
    }
  }
}

float weight(PanelLayout layout, const uint8_t* panel, int64_t k, int r) {
  if (layout == PanelLayout::kF32) return load_as<float>(panel + (k * kPanelRows + r) * 4);
  if (layout == PanelLayout::kE5M2) {
    const uint8_t* group = e5m2_group(panel, k);
    return e5m2_to_float(group[e5m2_codes(k) + r]) * load_as<float>(group + r * 4);
  }
  const auto bits = load_as<uint16_t>(panel + half_index(layout, k, r) * 2);
  return layout == PanelLayout::kF16 ? half_to_float(bits) : bfloat_to_float(bits);
}

template <PanelLayout L>
void float_tile(const FloatTileArgs& a) {
  for (int r = 0; r < a.valid; ++r) {
    float c[4] = {};
    for (int64_t k = 0; k < a.k; ++k)
      c[k % 4] = std::fma(weight(L, a.panel, k, r), a.x[k], c[k % 4]);
    a.out[r] = (c[0] + c[1]) + (c[2] + c[3]);
  }
}

QuantTileKernel quant_kernel(SourceType source, int) {
  QuantTileKernel kernel = nullptr;
  with_format(source, [&]<SourceType S>() { kernel = quant_tile<S>; });
  return kernel;
}

FloatTileKernel float_kernel(PanelLayout layout, int) {
  switch (layout) {
    case PanelLayout::kF16:
      return float_tile<PanelLayout::kF16>;
    case PanelLayout::kBF16:
      return float_tile<PanelLayout::kBF16>;
    case PanelLayout::kE5M2:
      return float_tile<PanelLayout::kE5M2>;
    default:
      return float_tile<PanelLayout::kF32>;
  }
}

void quantize_group(const float* x, int8_t* q, QuantizedRows::Terms* terms) {
  uint32_t largest = 0;  // of |x| as bits, which order as the values do; NaN above infinity
  for (int i = 0; i < kGroup; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  const float amax = std::bit_cast<float>(largest);
  const float inverse = inverse_scale(amax);
  int first = 0;
  int sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    q[i] = inverse == 0.0f ? 0 : static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sum += q[i];
    if (i == 15) first = sum;
  }
  set_terms(amax, first, sum, terms);
}

int64_t int8_loop(int64_t loops, int) {
  volatile int8_t source = 3;
  const int8_t x = source;
  int32_t sum[8] = {};
  for (int64_t i = 0; i < loops; ++i) {
    for (int j = 0; j < 8; ++j) sum[j] += x * static_cast<int8_t>(i + j);
  }
  volatile int32_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
  (void)sink;
  return loops * 16;
}

int64_t f32_loop(int64_t loops) {
  volatile float source = 1e-3f;
  const float x = source;
  float sum[8] = {};
  for (int64_t i = 0; i < loops; ++i) {
    for (int j = 0; j < 8; ++j) sum[j] = std::fma(x, x, sum[j]);
  }
  volatile float sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
  (void)sink;
  return loops * 16;
}

int64_t read_loop(const uint8_t* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; i += 8) sum += load_as<uint64_t>(data + i);
  return static_cast<int64_t>(sum);
}

}  // namespace

const KernelTable& scalar_kernels() {
  static const KernelTable table{.isa = "scalar",
                                 .quant_rows = 1,
                                 .float_rows = 1,
                                 .quant = quant_kernel,
                                 .floats = float_kernel,
                                 .quantize_group = quantize_group,
                                 .int8_loop = int8_loop,
                                 .read_loop = read_loop,
                                 .f32_loop = f32_loop,
                                 .bf16_loop = nullptr};
  return table;
}

}  // namespace octavo
