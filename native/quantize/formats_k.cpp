// K-quants: 256 numbers a block, whose scales are integers times one or two halves of the block.
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

int clamped(float v, int low, int high) {
  return std::clamp(static_cast<int>(std::nearbyint(v)), low, high);
}

// --- With minima: number = d * sc * q - dmin * m ---------------------------------------------

struct Minima {
  float d = 0, dmin = 0;
  uint8_t scale[kMaxSubs] = {}, minimum[kMaxSubs] = {};
};

// The pair of integers near (scale, minimum) that costs least.
void settle(const float* x, const float* w, int sub, int top, int most, Minima& m, int j) {
  float least = std::numeric_limits<float>::infinity();
  const int scale = m.scale[j], minimum = m.minimum[j];
  for (int ds = -1; ds <= 1; ++ds) {
    for (int dm = -2; dm <= 2; ++dm) {
      const int s = scale + ds, o = minimum + dm;
      if (s < 0 || s > most || o < 0 || o > most) continue;
      const Affine a{m.d * static_cast<float>(s), -m.dmin * static_cast<float>(o)};
      const float error = rounding_error(x, w, sub, a, 0, top);
      if (error < least) {
        least = error;
        m.scale[j] = static_cast<uint8_t>(s);
        m.minimum[j] = static_cast<uint8_t>(o);
      }
    }
  }
}

Minima fit_minima(const float* x, const float* w, int sub, int top, int most) {
  Affine found[kMaxSubs];
  const int subs = 256 / sub;
  float scale = 0, minimum = 0;
  for (int j = 0; j < subs; ++j) {
    found[j] = search_affine(x + j * sub, w + j * sub, sub, top, true);
    scale = std::max(scale, found[j].scale);
    minimum = std::max(minimum, -found[j].offset);
  }
  Minima m;
  m.d = half_to_float(half_bits(scale / static_cast<float>(most)));
  m.dmin = half_to_float(half_bits(minimum / static_cast<float>(most)));
  for (int j = 0; j < subs; ++j) {
    m.scale[j] = static_cast<uint8_t>(m.d > 0 ? clamped(found[j].scale / m.d, 0, most) : 0);
    m.minimum[j] =
        static_cast<uint8_t>(m.dmin > 0 ? clamped(-found[j].offset / m.dmin, 0, most) : 0);
    settle(x + j * sub, w + j * sub, sub, top, most, m, j);
  }
  return m;
}

// Twelve bytes hold eight pairs of 6 bits (Q4_K, Q5_K).
void put_pairs(const Minima& m, uint8_t* at) {
  for (int j = 0; j < 4; ++j) {
    at[j] = static_cast<uint8_t>(m.scale[j] | ((m.scale[j + 4] >> 4) << 6));
    at[j + 4] = static_cast<uint8_t>(m.minimum[j] | ((m.minimum[j + 4] >> 4) << 6));
    at[j + 8] = static_cast<uint8_t>((m.scale[j + 4] & 15) | ((m.minimum[j + 4] & 15) << 4));
  }
}

void take_pair(const uint8_t* at, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = at[j] & 63;
    minimum = at[j + 4] & 63;
  } else {
    scale = (at[j + 4] & 15) | ((at[j - 4] >> 6) << 4);
    minimum = (at[j + 4] >> 4) | ((at[j] >> 6) << 4);
  }
}

template <int kTop, int kBytes>
void fit_pairs(const float* x, const float* w, uint8_t* out) {
  const Minima m = fit_minima(x, w, 32, kTop, 63);
  std::memset(out, 0, kBytes);
  store_half(out, m.d);
  store_half(out + 2, m.dmin);
  put_pairs(m, out + 4);
}

void grid_pairs(const uint8_t* in, float* scale, float* offset) {
  const float d = load_half(in), dmin = load_half(in + 2);
  for (int j = 0; j < 8; ++j) {
    int s, m;
    take_pair(in + 4, j, s, m);
    scale[j] = d * static_cast<float>(s);
    offset[j] = -(dmin * static_cast<float>(m));
  }
}

void put_q4_k(const uint8_t* codes, uint8_t* out) {
  for (int pair = 0; pair < 4; ++pair, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      out[16 + pair * 32 + i] = static_cast<uint8_t>(codes[i] | (codes[i + 32] << 4));
    }
  }
}

void put_q5_k(const uint8_t* codes, uint8_t* out) {
  std::memset(out + 16, 0, 32);
  for (int pair = 0; pair < 4; ++pair, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      const int low = codes[i], high = codes[i + 32];
      out[48 + pair * 32 + i] = static_cast<uint8_t>((low & 15) | ((high & 15) << 4));
      out[16 + i] |=
          static_cast<uint8_t>(((low >> 4) << (2 * pair)) | ((high >> 4) << (2 * pair + 1)));
    }
  }
}

// Q2_K: sixteen pairs of 4 bits.
void fit_q2_k(const float* x, const float* w, uint8_t* out) {
  const Minima m = fit_minima(x, w, 16, 3, 15);
  std::memset(out, 0, 84);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>(m.scale[j] | (m.minimum[j] << 4));
  }
  store_half(out + 80, m.d);
  store_half(out + 82, m.dmin);
}

void grid_q2_k(const uint8_t* in, float* scale, float* offset) {
  const float d = load_half(in + 80), dmin = load_half(in + 82);
  for (int j = 0; j < 16; ++j) {
    scale[j] = d * static_cast<float>(in[j] & 15);
    offset[j] = -(dmin * static_cast<float>(in[j] >> 4));
  }
}

// Two bits each: four runs of 32 numbers share 32 bytes.
void put_two_bits(const uint8_t* codes, uint8_t* at) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int run = 0; run < 4; ++run) {
        byte |= (codes[half * 128 + run * 32 + i] & 3) << (2 * run);
      }
      at[half * 32 + i] = static_cast<uint8_t>(byte);
    }
  }
}

void put_q2_k(const uint8_t* codes, uint8_t* out) {
  put_two_bits(codes, out + 16);
}

// --- Symmetric: number = d * sc * (q - zero), sixteen scales with a sign ----------------------

struct Signed {
  float d = 0;
  int scale[kMaxSubs] = {};
};

Signed fit_signed(const float* x, const float* w, int zero, int low, int high) {
  float found[kMaxSubs];
  for (int j = 0; j < 16; ++j) found[j] = search_scale(x + 16 * j, w + 16 * j, 16, -zero, zero - 1);
  const float peak = *std::max_element(
      found, found + 16, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  Signed s;
  if (peak == 0) return s;
  s.d = half_to_float(half_bits(peak / static_cast<float>(low)));
  if (s.d == 0) return s;
  for (int j = 0; j < 16; ++j) {
    const int near = clamped(found[j] / s.d, low, high);
    float least = std::numeric_limits<float>::infinity();
    for (int k = std::max(near - 1, low); k <= std::min(near + 1, high); ++k) {
      const Affine a{s.d * static_cast<float>(k), 0};
      const float error = rounding_error(x + 16 * j, w + 16 * j, 16, a, -zero, zero - 1);
      if (error < least) {
        least = error;
        s.scale[j] = k;
      }
    }
  }
  return s;
}

void fit_q6_k(const float* x, const float* w, uint8_t* out) {
  const Signed s = fit_signed(x, w, 32, -128, 127);
  std::memset(out, 0, 210);
  for (int j = 0; j < 16; ++j) out[192 + j] = static_cast<uint8_t>(s.scale[j]);
  store_half(out + 208, s.d);
}

void grid_q6_k(const uint8_t* in, float* scale, float* offset) {
  const float d = load_half(in + 208);
  for (int j = 0; j < 16; ++j) {
    scale[j] = d * static_cast<float>(static_cast<int8_t>(in[192 + j]));
    offset[j] = 0;
  }
}

void put_q6_k(const uint8_t* codes, uint8_t* out) {
  for (int half = 0; half < 2; ++half, codes += 128) {
    uint8_t* low = out + 64 * half;
    uint8_t* high = out + 128 + 32 * half;
    for (int i = 0; i < 32; ++i) {
      const int a = codes[i], b = codes[i + 32], c = codes[i + 64], d = codes[i + 96];
      low[i] = static_cast<uint8_t>((a & 15) | ((c & 15) << 4));
      low[i + 32] = static_cast<uint8_t>((b & 15) | ((d & 15) << 4));
      high[i] =
          static_cast<uint8_t>((a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6));
    }
  }
}

// Q3_K: sixteen 6-bit scales less 32 in twelve bytes, laid out as four words.
void fit_q3_k(const float* x, const float* w, uint8_t* out) {
  const Signed s = fit_signed(x, w, 4, -32, 31);
  std::memset(out, 0, 110);
  for (int j = 0; j < 16; ++j) {
    const int code = s.scale[j] + 32;
    out[96 + j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
    out[104 + j % 4] |= static_cast<uint8_t>((code >> 4) << (2 * (j / 4)));
  }
  store_half(out + 108, s.d);
}

void grid_q3_k(const uint8_t* in, float* scale, float* offset) {
  const float d = load_half(in + 108);
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? in[96 + j] & 15 : in[96 + j - 8] >> 4;
    const int high = (in[104 + j % 4] >> (2 * (j / 4))) & 3;
    scale[j] = d * static_cast<float>((low | (high << 4)) - 32);
    offset[j] = 0;
  }
}

void put_q3_k(const uint8_t* codes, uint8_t* out) {
  std::memset(out, 0, 32);
  for (int i = 0; i < 256; ++i) out[i % 32] |= static_cast<uint8_t>((codes[i] >> 2) << (i / 32));
  put_two_bits(codes, out + 32);
}

}  // namespace

const Format kKFormats[] = {
    {10, 256, 84, 16, 4, 0, nullptr, nullptr, fit_q2_k, grid_q2_k, put_q2_k},
    {11, 256, 110, 16, 8, 4, nullptr, nullptr, fit_q3_k, grid_q3_k, put_q3_k},
    {12, 256, 144, 32, 16, 0, nullptr, nullptr, fit_pairs<15, 144>, grid_pairs, put_q4_k},
    {13, 256, 176, 32, 32, 0, nullptr, nullptr, fit_pairs<31, 176>, grid_pairs, put_q5_k},
    {14, 256, 210, 16, 64, 32, nullptr, nullptr, fit_q6_k, grid_q6_k, put_q6_k},
};
const int kNumKFormats = sizeof(kKFormats) / sizeof(kKFormats[0]);

}  // namespace octavo::quantize
