// Scales and mins of a panel as the bf16 products have them: float16, each twice, times a power of
// two of its weight row. For linear_bf16_amxbf16.cpp, as its other bf16_* headers.
#pragma once

#include <algorithm>

#include "kernels/panel_views_zmm.h"

namespace octavo {
namespace {

// Largest magnitude that an element without its min stands for.
template <SourceType S>
constexpr float largest() {
  using F = Format<S>;
  if constexpr (kIsWide<S>) return 480.0f / 256;  // as float16 bits hold an e4m3
  if constexpr (F::kCodes) return 128.0f;
  return static_cast<float>(std::max((1 << F::kBits) - 1 - F::kZeroPoint, F::kZeroPoint));
}

template <SourceType S>
constexpr bool kHasMin = Format<S>::kMin || Format<S>::kHalvesMin;
// Elements, less their zero point, are looked up by five bits.
template <SourceType S>
constexpr bool kLooksUp = Format<S>::kBits <= 5;
// From units of 1/512 to those of 256, which the bits of a wide element have in float16.
constexpr float kWideUnit = 0x1p17f;

// In float32, for the powers: the scale of half `half` of a group of each weight row, and the min.
template <SourceType S>
OCTAVO_INLINE __m512 exact_scale(const uint8_t* head, const uint8_t* group, int half) {
  const __m512 scale = Stored<S>::scale(head, group);
  if constexpr (kIsWide<S>) return _mm512_mul_ps(scale, _mm512_set1_ps(kWideUnit));
  if constexpr (!Format<S>::kHalves) return scale;
  if constexpr (Format<S>::kHalves) return _mm512_mul_ps(scale, Stored<S>::half_scale(group, half));
}
template <SourceType S>
OCTAVO_INLINE __m512 exact_min(const uint8_t* head, const uint8_t* group, int half) {
  if constexpr (Format<S>::kHalvesMin) {
    return _mm512_mul_ps(Stored<S>::min_scale(head), Stored<S>::half_min(group, half));
  } else {
    return Stored<S>::min(head, group);
  }
}

// Numbers of the 16 weight rows as float16, each twice: of the two columns of a pair.
OCTAVO_INLINE __m512h twice(__m256i numbers) {
  const __m512i each = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8,
                                        7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_castsi512_ph(_mm512_permutexvar_epi16(each, _mm512_castsi256_si512(numbers)));
}
OCTAVO_INLINE __m512h twice_halves(const uint8_t* at) {
  return twice(load_256(at));
}
OCTAVO_INLINE __m512h twice_rounded(__m512 x) {
  return twice(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Of bytes, as words that hold each in its low or in its high half.
template <bool kHigh>
OCTAVO_INLINE __m512i twice_bytes(const uint8_t* at) {
  constexpr __mmask64 kHalf = kHigh ? 0xaaaaaaaaaaaaaaaa : 0x5555555555555555;
  const __m512i each =
      _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                       0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                       0x03030303, 0x02020202, 0x01010101, 0);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm512_maskz_permutexvar_epi8(kHalf, each, _mm512_castsi128_si512(bytes));
}
OCTAVO_INLINE __m512h twice_unsigned(const uint8_t* at) {
  return _mm512_cvtepu16_ph(twice_bytes<false>(at));
}
OCTAVO_INLINE __m512h twice_signed(const uint8_t* at) {
  return _mm512_cvtepi16_ph(_mm512_srai_epi16(twice_bytes<true>(at), 8));
}

OCTAVO_INLINE __m512h times(__m512h a, __m512h b) {
  return _mm512_mul_ph(a, b);
}
OCTAVO_INLINE __m512h minus(__m512h a) {
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
  return _mm512_castsi512_ph(_mm512_xor_si512(_mm512_castph_si512(a), sign));
}

// An element is scale * number + min.
struct Factors {
  __m512h scale;
  __m512h min;
};

// Numbers that the low five bits of an element stand for, in float16.
template <SourceType S>
OCTAVO_INLINE __m512i number_table(const uint8_t* head) {
  using F = Format<S>;
  __m512i numbers;
  if constexpr (F::kCodes) {
    const auto* codes = reinterpret_cast<const __m128i*>(code_table<S>(head));
    numbers = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(_mm_loadu_si128(codes)));
  } else {
    numbers = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15,
                               14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    numbers = _mm512_and_si512(numbers, _mm512_set1_epi16((1 << F::kBits) - 1));
  }
  numbers = _mm512_sub_epi16(numbers, _mm512_set1_epi16(F::kZeroPoint));
  return _mm512_castph_si512(_mm512_cvtepi16_ph(numbers));
}

// What the groups of a block share.
template <SourceType S>
struct Shared {
  using F = Format<S>;
  __m512 power;    // of the rows
  __m512h powers;  // each twice
  __m512i table{};
  Factors block;

  OCTAVO_INLINE void panel(const uint8_t* trailer) {
    power = load_floats(trailer);
    powers = twice_rounded(power);
    if constexpr (kLooksUp<S> && !F::kTable) table = number_table<S>(nullptr);
  }

  OCTAVO_INLINE void head(const uint8_t* at) {
    if constexpr (F::kTable) table = number_table<S>(at);
    if constexpr (F::kFloatHead) {
      const __m512 unit = _mm512_set1_ps(kIsWide<S> ? kWideUnit : 1.0f);
      if constexpr (!F::kHalvesFloat) {
        const __m512 scale = _mm512_mul_ps(load_floats(at), unit);
        block.scale = twice_rounded(_mm512_mul_ps(scale, power));
      }
    } else if constexpr (F::kHead > 0) {
      block.scale = times(twice_halves(at), powers);
    }
    if constexpr (F::kScales == Scales::kSuperMin || F::kHalvesMin) {
      block.min = minus(times(twice_halves(at + 32), powers));
    } else if constexpr (F::kScales == Scales::kZeroBlock) {
      const __m512h zero = _mm512_cvtepi16_ph(_mm512_castph_si512(twice(load_256(at + 32))));
      block.min = minus(times(block.scale, zero));
    }
  }

  // Of half `half` of a group; `head` and `group` as Stored has them.
  OCTAVO_INLINE Factors factors(const uint8_t* head, const uint8_t* group, int half) const {
    const uint8_t* tail = group + F::kElementBytes;
    Factors f = block;
    if constexpr (F::kScales == Scales::kPlain || F::kScales == Scales::kMin) {
      f.scale = times(twice_halves(tail), powers);
      if constexpr (F::kMin) f.min = times(twice_halves(tail + 32), powers);
    } else if constexpr (F::kScales == Scales::kZero) {
      f.scale = times(twice_halves(tail), powers);
      f.min = minus(times(f.scale, twice_unsigned(tail + 32)));
    } else if constexpr (F::kScales == Scales::kSuperMin) {
      f.scale = times(block.scale, twice_unsigned(tail));
      f.min = times(block.min, twice_unsigned(tail + 16));
    } else if constexpr (F::kScales == Scales::kSuper) {
      f.scale = times(block.scale, twice_signed(tail));
    } else if constexpr (F::kHalvesMin) {
      const __m512i both = twice_bytes<false>(tail + half * 16);
      const __m512i low = _mm512_and_si512(both, _mm512_set1_epi16(15));
      f.scale = times(block.scale, _mm512_cvtepu16_ph(low));
      f.min = times(block.min, _mm512_cvtepu16_ph(_mm512_srli_epi16(both, 4)));
    } else if constexpr (F::kHalves && !F::kHalvesFloat) {
      f.scale = times(block.scale, twice_signed(tail + half * 16));
    } else if constexpr (F::kHalvesFloat || F::kScales == Scales::kPower) {
      f.scale = twice_rounded(_mm512_mul_ps(exact_scale<S>(head, group, half), power));
    }
    if constexpr (!kLooksUp<S> && F::kZeroPoint > 0) {
      const __m512h zero = _mm512_set1_ph(static_cast<_Float16>(-F::kZeroPoint));
      if constexpr (kHasMin<S>) {
        f.min = _mm512_fmadd_ph(f.scale, zero, f.min);
      } else {
        f.min = times(f.scale, zero);
      }
    }
    return f;
  }
};

}  // namespace
}  // namespace octavo
