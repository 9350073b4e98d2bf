// 16-bit floats, one at a time. Plain integer arithmetic: the same on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace octavo {

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN, which becomes quiet
    const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude >= 0x400u) {
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  }
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // zero or subnormal
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline float bfloat_to_float(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

// Loads from unaligned file bytes.
template <typename T>
inline T load_as(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

inline float load_half(const uint8_t* p) {
  return half_to_float(load_as<uint16_t>(p));
}

// 2^(e - 128): MXFP4's scale of numbers that are doubled. The two smallest are subnormal.
inline float power_scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1u) << 23);
}

// An e4m3 number of the lower 7 bits, divided by 256: as the float16 that has the same bits.
inline float small_e4m3(uint8_t x) {
  return half_to_float(static_cast<uint16_t>((x & 0x7f) << 7));
}

// An e5m2 number: the first byte of a float16.
inline float e5m2_to_float(uint8_t x) {
  return half_to_float(static_cast<uint16_t>(x << 8));
}

}  // namespace octavo
