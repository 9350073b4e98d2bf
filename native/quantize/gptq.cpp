#include "quantize/gptq.h"

namespace octavo::quantize {

void gptq_block(const Format& format, float* x, const float* factor, const float* importance,
                float* error, uint8_t* out) {
  float w[kMaxBlock], scale[kMaxSubs], offset[kMaxSubs];
  uint8_t codes[kMaxBlock];
  fit_weights(format, x, importance, w);
  format.fit(x, w, out);
  format.grid(out, scale, offset);
  for (int i = 0; i < format.block; ++i) {
    const int j = i / format.sub;
    const float s = scale[j];
    const int code = s == 0 ? nearest(format, 0) : nearest(format, (x[i] - offset[j]) / s);
    codes[i] = format.order ? format.order[code] : static_cast<uint8_t>(code);
    const float* row = factor + static_cast<int64_t>(i) * format.block;
    error[i] = (x[i] - (s * format.level(code) + offset[j])) / row[i];
    for (int k = i + 1; k < format.block; ++k) x[k] -= error[i] * row[k];
  }
  format.put(codes, out);
}

}  // namespace octavo::quantize
