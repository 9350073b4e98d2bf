// Products of wide formats on 256-bit registers: numbers in parts of 16 bits (wide.h) by
// activations of as many. For linear_q8_ymm.h; Dot is described there.
//
// A word is the even or the odd column of a pair, so that a dword is two of a row's four columns.
#pragma once

#include <array>
#include <utility>

#include "kernels/panel_views_ymm.h"
#include "kernels/wide.h"

namespace octavo {
namespace {

// The numbers of 32 codes, rows 8h..8h+7 by a column quad: [low, high][even, odd].
struct Parts {
  __m256i of[2][2];
};

// A panel as it is stored.
template <SourceType S>
struct StoredParts {
  static_assert(kIsWide<S>);
  using F = Format<S>;
  static constexpr size_t kHead = F::kHead;
  static constexpr size_t kBytes = kGroupBytes<S>;

  // Of 16 bytes in both halves of a register.
  static OCTAVO_INLINE __m256i look_up(const uint8_t (&table)[16], __m256i codes) {
    const auto* at = reinterpret_cast<const __m128i*>(table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(at)), codes);
  }

  static OCTAVO_INLINE Parts parts(const uint8_t* group, int j, int h) {
    // By exponent: the hidden bit of the mantissa, and what that is multiplied by in each part.
    static constexpr uint8_t kHidden[16] = {0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    static constexpr uint8_t kLow[16] = {1, 1, 2, 4, 8, 16, 32, 64};
    static constexpr uint8_t kHigh[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128};
    const __m256i x = load(group + j * 64 + h * 32);
    const __m256i exponent = _mm256_and_si256(_mm256_srli_epi16(x, 3), _mm256_set1_epi8(15));
    const __m256i fraction = _mm256_and_si256(x, _mm256_set1_epi8(7));
    const __m256i mantissa = _mm256_or_si256(fraction, look_up(kHidden, exponent));
    const __m256i even = _mm256_and_si256(mantissa, _mm256_set1_epi16(0x00ff));
    const __m256i odd = _mm256_andnot_si256(_mm256_set1_epi16(0x00ff), mantissa);
    const __m256i low = look_up(kLow, exponent), high = look_up(kHigh, exponent);
    // vpsignw makes zeros where it finds one: there a number is zero too.
    const __m256i even_sign = _mm256_slli_epi16(x, 8);
    return {{{_mm256_sign_epi16(_mm256_maddubs_epi16(low, even), even_sign),
              _mm256_sign_epi16(_mm256_maddubs_epi16(low, odd), x)},
             {_mm256_sign_epi16(_mm256_maddubs_epi16(high, even), even_sign),
              _mm256_sign_epi16(_mm256_maddubs_epi16(high, odd), x)}}};
  }

  static OCTAVO_INLINE __m256 scale(const uint8_t* head, const uint8_t*, int h) {
    return load_floats(head + h * 32);
  }
};

// The same as words, for many rows of activations: a group is the four words of each column quad
// and half, then float scales[16].
template <SourceType S>
struct ExpandedParts {
  using F = Format<S>;
  static constexpr size_t kHead = 0;
  static constexpr size_t kBytes = 2048 + 64;
  static_assert(kBytes <= kWideGroupBytes);

  static OCTAVO_INLINE Parts parts(const uint8_t* group, int j, int h) {
    const uint8_t* at = group + (j * 2 + h) * 128;
    return {{{load(at), load(at + 32)}, {load(at + 64), load(at + 96)}}};
  }
  static OCTAVO_INLINE __m256 scale(const uint8_t*, const uint8_t* group, int h) {
    return load_floats(group + 2048 + h * 32);
  }
};

template <SourceType S>
void expand_parts(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out) {
  using F = Format<S>;
  for (int64_t g = begin; g < end; ++g, out += ExpandedParts<S>::kBytes) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    for (int i = 0; i < 16; ++i) {
      const Parts parts = StoredParts<S>::parts(group, i / 2, i % 2);
      for (int w = 0; w < 4; ++w) store(out + i * 128 + w * 32, parts.of[w / 2][w % 2]);
    }
    __builtin_memcpy(out + 2048, head, 64);
  }
}

// T rows of activations by one panel.
template <class Dot, class View, int T>
struct WideTile {
  using F = typename View::F;
  using Terms = QuantizedRows::Terms;
  static constexpr int kMost = 4;  // rows whose sums the registers hold

  // The activations of a group as words, and the even and odd ones apart.
  struct Words {
    alignas(32) int32_t of[T][2][8];
    explicit OCTAVO_INLINE Words(const uint8_t* q) {
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i bytes = load(q + t * kGroup);
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
        _mm256_store_si256(reinterpret_cast<__m256i*>(of[t][0]), even);
        _mm256_store_si256(reinterpret_cast<__m256i*>(of[t][1]), _mm256_srai_epi16(bytes, 8));
      }
    }
  };

  // Adds a group to rows 8h..8h+7.
  static OCTAVO_INLINE void step(const uint8_t* head, const uint8_t* group, const Words& words,
                                 const Terms* terms, int h, __m256 (&c)[2][T]) {
    __m256i sum[T][2];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int j = 0; j < 8; ++j) {
      const Parts parts = View::parts(group, j, h);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
          const __m256i a = _mm256_set1_epi32(words.of[t][odd][j]);
          sum[t][0] = Dot::add_words(sum[t][0], parts.of[0][odd], a);
          sum[t][1] = Dot::add_words(sum[t][1], parts.of[1][odd], a);
        }
      }
    }
    const __m256 scale = View::scale(head, group, h);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256i total = _mm256_add_epi32(sum[t][0], _mm256_slli_epi32(sum[t][1], 7));
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(terms[t].scale));
      c[h][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), both, c[h][t]);
    }
  }

  static void run(const QuantTileArgs& a) {
    if constexpr (T > kMost) {
      constexpr int kFirst = T / 2;
      WideTile<Dot, View, kFirst>::run(a);
      QuantTileArgs rest = a;
      rest.q += kFirst * kGroup;
      rest.terms += kFirst * sizeof(Terms);
      rest.out += kFirst * a.ldo;
      WideTile<Dot, View, T - kFirst>::run(rest);
    } else {
      run_rows(a);
    }
  }

 private:
  static void run_rows(const QuantTileArgs& a) {
    alignas(32) float rows[T][kPanelRows] = {};
    const size_t bytes = static_cast<size_t>(a.valid) * sizeof(float);
    for (int t = 0; t < T && a.resume; ++t) __builtin_memcpy(rows[t], a.out + t * a.ldo, bytes);
    __m256 c[2][T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      c[0][t] = _mm256_load_ps(rows[t]);
      c[1][t] = _mm256_load_ps(rows[t] + 8);
    }
    const uint8_t *q = a.q, *terms = a.terms, *group = a.panel, *head = a.panel;
    for (int64_t g = 0; g < a.groups; ++g) {
      if (View::kHead > 0 && g % F::kSuper == 0) {
        head = group;
        group += View::kHead;
      }
      for (size_t b = 0; b < kGroupBytes<SourceType::kE4M3>; b += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(group + 2048 + b), _MM_HINT_T0);
      }
      const Words words(q);
      step(head, group, words, reinterpret_cast<const Terms*>(terms), 0, c);
      step(head, group, words, reinterpret_cast<const Terms*>(terms), 1, c);
      group += View::kBytes;
      q += a.group_stride;
      terms += a.group_stride;
    }
    for (int t = 0; t < T; ++t) {
      _mm256_store_ps(rows[t], c[0][t]);
      _mm256_store_ps(rows[t] + 8, c[1][t]);
      __builtin_memcpy(a.out + t * a.ldo, rows[t], bytes);
    }
  }
};

// The kernels of 1, 2, ... rows.
template <class Dot, class View, int... T>
const QuantTileKernel* wide_tiles(std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{
      WideTile<Dot, View, T + 1>::run...};
  return kTiles.data();
}

}  // namespace
}  // namespace octavo
