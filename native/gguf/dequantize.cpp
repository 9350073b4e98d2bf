#include "gguf/dequantize.h"

#include <bit>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/panel.h"

namespace octavo::gguf {
namespace {

uint16_t load16(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

float half(const uint8_t* at) {
  const uint16_t bits = load16(at);
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t rest = bits & 0x7fff;
  if (rest >= 0x7c00) {  // infinity, or a NaN, which becomes quiet
    const uint32_t quiet = rest > 0x7c00 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (rest & 0x3ff) << 13);
  }
  if (rest >= 0x0400) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;  // subnormal: exact
  return sign ? -magnitude : magnitude;
#endif
}

void f32(const uint8_t* b, float* out) {
  std::memcpy(out, b, sizeof *out);
}

void f16(const uint8_t* b, float* out) {
  *out = half(b);
}

void bf16(const uint8_t* b, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(load16(b)) << 16);
}

// half d, half m, 16 bytes of nibbles: low nibbles are elements 0..15, high ones 16..31.
void q4_1(const uint8_t* b, float* out) {
  const float d = half(b);
  const float m = half(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b[4 + i] >> 4) + m;
  }
}

// half d, 32 fifth bits, nibbles as above; the 5-bit number is offset by 16.
void q5_0(const uint8_t* b, float* out) {
  const float d = half(b);
  uint32_t high;
  std::memcpy(&high, b + 2, sizeof high);
  for (int i = 0; i < 16; ++i) {
    const int lo = (b[6 + i] & 15) | static_cast<int>((high >> i) & 1) << 4;
    const int hi = (b[6 + i] >> 4) | static_cast<int>((high >> (i + 16)) & 1) << 4;
    out[i] = d * static_cast<float>(lo - 16);
    out[i + 16] = d * static_cast<float>(hi - 16);
  }
}

// half d, 32 int8.
void q8_0(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// The j-th of eight 6-bit scales and mins that Q4_K packs into 12 bytes.
void scale_min(const uint8_t* s, int j, int& scale, int& min) {
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

// half d, half dmin, 12 bytes of scales and mins, 128 bytes of nibbles: 32 bytes hold two groups of
// 32 elements, the first in the low nibbles.
void q4_k(const uint8_t* b, float* out) {
  const float d = half(b);
  const float dmin = half(b + 2);
  for (int group = 0; group < 8; ++group) {
    int scale;
    int min;
    scale_min(b + 4, group, scale, min);
    const float ds = d * static_cast<float>(scale);
    const float dm = dmin * static_cast<float>(min);
    const uint8_t* q = b + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out[group * 32 + i] = ds * static_cast<float>((q[i] >> shift) & 15) - dm;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, half d; offset 32. Each
// half of 128 elements is four rows of 32: rows 0 and 1 use the low nibbles, 2 and 3 the high ones.
void q6_k(const uint8_t* b, float* out) {
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192);
  const float d = half(b + 208);
  for (int row = 0; row < 8; ++row) {
    const uint8_t* low = b + row / 4 * 64 + row % 2 * 32;
    const uint8_t* high = b + 128 + row / 4 * 32;
    const int low_shift = row % 4 / 2 * 4;
    const int high_shift = row % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      const int q = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
      const float ds = d * static_cast<float>(scales[row * 2 + i / 16]);
      out[row * 32 + i] = ds * static_cast<float>(q - 32);
    }
  }
}

template <void (*block)(const uint8_t*, float*), int elems, int bytes>
void each(const uint8_t* blocks, uint64_t num_blocks, float* out) {
  for (uint64_t i = 0; i < num_blocks; ++i) block(blocks + i * bytes, out + i * elems);
}

using Expand = void (*)(const uint8_t*, uint64_t, float*);

Expand expander(uint32_t type) {
  switch (static_cast<SourceType>(type)) {
    case SourceType::kF32:
      return each<f32, 1, 4>;
    case SourceType::kF16:
      return each<f16, 1, 2>;
    case SourceType::kBF16:
      return each<bf16, 1, 2>;
    case SourceType::kQ4_1:
      return each<q4_1, 32, 20>;
    case SourceType::kQ5_0:
      return each<q5_0, 32, 22>;
    case SourceType::kQ8_0:
      return each<q8_0, 32, 34>;
    case SourceType::kQ4_K:
      return each<q4_k, 256, 144>;
    case SourceType::kQ6_K:
      return each<q6_k, 256, 210>;
  }
  return nullptr;
}

}  // namespace

bool can_dequantize(uint32_t type) {
  return expander(type) != nullptr;
}

void dequantize(uint32_t type, const uint8_t* blocks, uint64_t num_blocks, float* out) {
  expander(type)(blocks, num_blocks, out);
}

}  // namespace octavo::gguf
