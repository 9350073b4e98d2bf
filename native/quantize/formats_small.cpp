// Formats of 32 numbers a block (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4), and ternary TQ2_0.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"
#include "quantize/formats.h"
#include "quantize/half_bits.h"
#include "quantize/search.h"

namespace octavo::quantize {
namespace {

// Symmetric: number = d * (q - kZero).
template <int kZero>
void fit_symmetric(const float* x, const float* w, uint8_t* out, int bytes, int n) {
  std::memset(out, 0, static_cast<size_t>(bytes));
  store_half(out, search_scale(x, w, n, -kZero, kZero - 1));
}

// Affine: number = d * q + m.
template <int kTop>
void fit_minimum(const float* x, const float* w, uint8_t* out, int bytes) {
  const Affine a = search_affine(x, w, 32, kTop, false);
  std::memset(out, 0, static_cast<size_t>(bytes));
  store_half(out, a.scale);
  store_half(out + 2, a.offset);
}

void fit_q4_0(const float* x, const float* w, uint8_t* out) {
  fit_symmetric<8>(x, w, out, 18, 32);
}
void fit_q5_0(const float* x, const float* w, uint8_t* out) {
  fit_symmetric<16>(x, w, out, 22, 32);
}
void fit_q4_1(const float* x, const float* w, uint8_t* out) {
  fit_minimum<15>(x, w, out, 20);
}
void fit_q5_1(const float* x, const float* w, uint8_t* out) {
  fit_minimum<31>(x, w, out, 24);
}

// The usual rule: 8 bits are many enough that the largest number decides.
void fit_q8_0(const float* x, const float*, uint8_t* out) {
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::max(peak, std::fabs(x[i]));
  std::memset(out, 0, 34);
  store_half(out, peak / 127.0f);
}

void fit_tq2_0(const float* x, const float* w, uint8_t* out) {
  std::memset(out, 0, 66);
  store_half(out + 64, std::fabs(search_scale(x, w, 256, -1, 1)));
}

// Groups of 128 with one scale, as four blocks of Q4_0.
void fit_q4_0_wide(const float* x, const float* w, uint8_t* out) {
  std::memset(out, 0, 72);
  const float scale = search_scale(x, w, 128, -8, 7);
  for (int i = 0; i < 4; ++i) store_half(out + 18 * i, scale);
}

void grid_scale(const uint8_t* in, float* scale, float* offset) {
  *scale = load_half(in);
  *offset = 0;
}

void grid_minimum(const uint8_t* in, float* scale, float* offset) {
  *scale = load_half(in);
  *offset = load_half(in + 2);
}

void grid_tq2_0(const uint8_t* in, float* scale, float* offset) {
  grid_scale(in + 64, scale, offset);
}

void put_nibbles(const uint8_t* codes, uint8_t* at) {
  for (int i = 0; i < 16; ++i) {
    at[i] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
  }
}

void put_q4_0(const uint8_t* codes, uint8_t* out) {
  put_nibbles(codes, out + 2);
}
void put_q4_0_wide(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 4; ++i) put_q4_0(codes + 32 * i, out + 18 * i);
}
void put_q4_1(const uint8_t* codes, uint8_t* out) {
  put_nibbles(codes, out + 4);
}

void put_fifth_bits(const uint8_t* codes, uint8_t* at) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(at, &high, sizeof high);
}

void put_q5_0(const uint8_t* codes, uint8_t* out) {
  put_fifth_bits(codes, out + 2);
  put_nibbles(codes, out + 6);
}

void put_q5_1(const uint8_t* codes, uint8_t* out) {
  put_fifth_bits(codes, out + 4);
  put_nibbles(codes, out + 8);
}

void put_q8_0(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(codes[i] - 128);
}

void put_tq2_0(const uint8_t* codes, uint8_t* out) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int part = 0; part < 4; ++part) byte |= codes[half * 128 + part * 32 + i] << (2 * part);
      out[half * 32 + i] = static_cast<uint8_t>(byte);
    }
  }
}

// OCP's e2m1 numbers, ascending, and their codes (sign in bit 3).
constexpr float kE2m1[16] = {-6,   -4,   -3, -2,   -1.5f, -1, -0.5f, -0.0f,
                             0.0f, 0.5f, 1,  1.5f, 2,     3,  4,     6};
constexpr uint8_t kE2m1Codes[16] = {15, 14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7};

float power_of_two(int e8m0) {
  return std::ldexp(1.0f, e8m0 - 127);
}

void fit_mxfp4(const float* x, const float* w, uint8_t* out) {
  std::memset(out, 0, 17);
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::max(peak, std::fabs(x[i]));
  if (peak == 0) return;
  const Format& format = *find_format(39);
  const int usual = std::ilogb(peak) - 2 + 127;
  float least = std::numeric_limits<float>::infinity();
  for (int e = std::max(usual - 1, 0); e <= std::min(usual + 1, 254); ++e) {
    const float scale = power_of_two(e);
    float error = 0;
    for (int i = 0; i < 32; ++i) {
      const float d = scale * format.level(nearest(format, x[i] / scale)) - x[i];
      error += w[i] * d * d;
    }
    if (error < least) {
      least = error;
      out[0] = static_cast<uint8_t>(e);
    }
  }
}

void grid_mxfp4(const uint8_t* in, float* scale, float* offset) {
  *scale = power_of_two(in[0]);
  *offset = 0;
}

void put_mxfp4(const uint8_t* codes, uint8_t* out) {
  put_nibbles(codes, out + 1);
}

}  // namespace

const Format kSmallFormats[] = {
    {2, 32, 18, 32, 16, 8, nullptr, nullptr, fit_q4_0, grid_scale, put_q4_0},
    {kWideQ4_0, 128, 72, 128, 16, 8, nullptr, nullptr, fit_q4_0_wide, grid_scale, put_q4_0_wide},
    {3, 32, 20, 32, 16, 0, nullptr, nullptr, fit_q4_1, grid_minimum, put_q4_1},
    {6, 32, 22, 32, 32, 16, nullptr, nullptr, fit_q5_0, grid_scale, put_q5_0},
    {7, 32, 24, 32, 32, 0, nullptr, nullptr, fit_q5_1, grid_minimum, put_q5_1},
    {8, 32, 34, 32, 256, 128, nullptr, nullptr, fit_q8_0, grid_scale, put_q8_0},
    {35, 256, 66, 256, 3, 1, nullptr, nullptr, fit_tq2_0, grid_tq2_0, put_tq2_0},
    {39, 32, 17, 32, 16, 0, kE2m1, kE2m1Codes, fit_mxfp4, grid_mxfp4, put_mxfp4},
};
const int kNumSmallFormats = sizeof(kSmallFormats) / sizeof(kSmallFormats[0]);

}  // namespace octavo::quantize
