// float32 to half precision, round to nearest even; plain integer arithmetic.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace octavo::quantize {

inline uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (!(magnitude <= 65504.0f)) return static_cast<uint16_t>(sign | 0x7bffu);  // the largest
  if (magnitude < 0x1p-14f) {
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f)));
  }
  const uint32_t rest = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13));
}

inline void store_half(uint8_t* at, float value) {
  const uint16_t bits = half_bits(value);
  std::memcpy(at, &bits, sizeof bits);
}

}  // namespace octavo::quantize
