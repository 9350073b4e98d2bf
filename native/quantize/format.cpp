#include "quantize/format.h"

#include <algorithm>
#include <cmath>

#include "quantize/formats.h"

namespace octavo::quantize {

const Format* find_format(uint32_t type) {
  for (int i = 0; i < kNumSmallFormats; ++i) {
    if (kSmallFormats[i].type == type) return &kSmallFormats[i];
  }
  for (int i = 0; i < kNumKFormats; ++i) {
    if (kKFormats[i].type == type) return &kKFormats[i];
  }
  return nullptr;
}

int nearest(const Format& format, float v) {
  const int last = format.codes - 1;
  if (format.table == nullptr) {
    const float code = std::nearbyint(v + format.zero);
    return static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(last)));
  }
  const float* end = format.table + format.codes;
  const auto above = static_cast<int>(std::lower_bound(format.table, end, v) - format.table);
  if (above == 0) return 0;
  if (above > last) return last;
  return v - format.table[above - 1] < format.table[above] - v ? above - 1 : above;
}

void fit_weights(const Format& format, const float* x, const float* importance, float* w) {
  const int run = std::max(format.sub, 32);
  for (int start = 0; start < format.block; start += run) {
    float squares = 0;
    for (int i = start; i < start + run; ++i) squares += x[i] * x[i];
    const float mean = squares / static_cast<float>(run);
    for (int i = start; i < start + run; ++i) {
      w[i] = importance ? importance[i] : std::sqrt(mean) + std::fabs(x[i]);
    }
  }
}

void quantize_block(const Format& format, const float* x, const float* importance, uint8_t* out) {
  float w[kMaxBlock], scale[kMaxSubs], offset[kMaxSubs];
  uint8_t codes[kMaxBlock];
  fit_weights(format, x, importance, w);
  format.fit(x, w, out);
  format.grid(out, scale, offset);
  for (int i = 0; i < format.block; ++i) {
    const int j = i / format.sub;
    const int code =
        scale[j] == 0 ? nearest(format, 0) : nearest(format, (x[i] - offset[j]) / scale[j]);
    codes[i] = format.order ? format.order[code] : static_cast<uint8_t>(code);
  }
  format.put(codes, out);
}

}  // namespace octavo::quantize
