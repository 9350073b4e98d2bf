// bf16 as a storage type: the upper half of a float. Included by the simd_*.h of each ISA.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo {

struct Bf16 {
  uint16_t bits;
};

inline float bf16_to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Round to nearest even; NaN stays NaN.
inline Bf16 float_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace octavo
