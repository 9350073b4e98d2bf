// Panels read through 256-bit registers, as they are stored or unpacked ahead. For linear_q8_ymm.h.
#pragma once

#include <immintrin.h>

#include "kernels/format.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

OCTAVO_INLINE __m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

OCTAVO_INLINE __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

OCTAVO_INLINE __m128i load_8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}

OCTAVO_INLINE __m128i load_16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

OCTAVO_INLINE void store(uint8_t* p, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}

OCTAVO_INLINE __m256 load_floats(const uint8_t* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}

OCTAVO_INLINE void store_floats(uint8_t* p, __m256 v) {
  _mm256_storeu_ps(reinterpret_cast<float*>(p), v);
}

// A copy of the 4 bytes at p in every 4.
OCTAVO_INLINE __m256i load_four(const void* p) {
  int four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// A panel as it is stored, read eight rows at a time: rows 8h..8h+7.
template <SourceType S>
struct Stored {
  using F = Format<S>;
  static constexpr size_t kHead = F::kHead;
  static constexpr size_t kBytes = kGroupBytes<S>;  // of a group
  static constexpr size_t kPrefetched = kBytes;     // of a later group, while one is multiplied

  // Column quad j of a group.
  static OCTAVO_INLINE __m256i quad(const uint8_t* head, const uint8_t* group, int j, int h) {
    if constexpr (F::kBytesOnly) return load(group + j * 64 + h * 32);
    constexpr int kBits = F::kLineBits;
    constexpr int kLineQuads = 8 / kBits;
    const __m256i low = _mm256_set1_epi8((1 << kBits) - 1);
    const __m256i line = load(group + j / kLineQuads * 64 + h * 32);
    const int at = j % kLineQuads * kBits;
    const __m256i moved = at == 0 ? line : _mm256_srli_epi16(line, at);
    const __m256i element = _mm256_and_si256(moved, low);
    if constexpr (F::kCodes) {
      const auto* table = reinterpret_cast<const __m128i*>(code_table<S>(head));
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table)), element);
    } else if constexpr (F::kPlanes == 0) {
      return element;
    } else {
      constexpr int kQuads = 8 / F::kPlanes;
      const __m256i plane = load(group + F::kLines * 64 + j / kQuads * 64 + h * 32);
      const int shift = j % kQuads * F::kPlanes - kBits;  // to the right
      const __m256i placed = shift == 0  ? plane
                             : shift < 0 ? _mm256_slli_epi16(plane, -shift)
                                         : _mm256_srli_epi16(plane, shift);
      const __m256i high = _mm256_set1_epi8(((1 << F::kPlanes) - 1) << kBits);
      return _mm256_or_si256(element, _mm256_and_si256(placed, high));
    }
  }

  // The scales of the group, or (kHalves) of the block of 256.
  static OCTAVO_INLINE __m256 scale(const uint8_t* head, const uint8_t* group, int h) {
    const uint8_t* tail = group + F::kElementBytes;
    if constexpr (F::kFloatHead) {
      return load_floats(head + h * 32);
    } else if constexpr (F::kHalves || F::kScales == Scales::kBlock ||
                         F::kScales == Scales::kZeroBlock) {
      return load_halves(head + h * 16);
    } else if constexpr (F::kScales == Scales::kSuperMin) {
      const __m256i sc = _mm256_cvtepu8_epi32(load_8(tail + h * 8));
      return _mm256_mul_ps(load_halves(head + h * 16), _mm256_cvtepi32_ps(sc));
    } else if constexpr (F::kScales == Scales::kSuper) {
      const __m256i sc = _mm256_cvtepi8_epi32(load_8(tail + h * 8));
      return _mm256_mul_ps(load_halves(head + h * 16), _mm256_cvtepi32_ps(sc));
    } else if constexpr (F::kScales == Scales::kPower) {
      // As power_scale: 2^-128 and 2^-127 by shifting a bit, from there on by counting exponents.
      const __m256i e = _mm256_cvtepu8_epi32(load_8(tail + h * 8));
      const __m256i two = _mm256_set1_epi32(2);
      const __m256i base = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), _mm256_min_epi32(e, two));
      const __m256i above = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_max_epi32(e, two), two), 23);
      return _mm256_castsi256_ps(_mm256_add_epi32(base, above));
    } else {
      return load_halves(tail + h * 16);
    }
  }

  // kHalves: the scales of half `half` of the group.
  static OCTAVO_INLINE __m256 half_scale(const uint8_t* group, int half, int h) {
    const __m128i bytes = load_8(group + F::kElementBytes + half * 16 + h * 8);
    if constexpr (F::kHalvesFloat) {  // as small_e4m3
      const __m128i moved = _mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 7);
      return _mm256_cvtph_ps(_mm_and_si128(moved, _mm_set1_epi16(0x3fff)));
    } else if constexpr (F::kHalvesMin) {
      const __m256i both = _mm256_cvtepu8_epi32(bytes);
      return _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15)));
    } else {
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
  }

  // kHalvesMin: the whole-numbered mins of half `half` of the group, and the block's scales of
  // mins.
  static OCTAVO_INLINE __m256 half_min(const uint8_t* group, int half, int h) {
    const __m128i bytes = load_8(group + F::kElementBytes + half * 16 + h * 8);
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_cvtepu8_epi32(bytes), 4));
  }
  static OCTAVO_INLINE __m256 min_scale(const uint8_t* head, int h) {
    return load_halves(head + 32 + h * 16);
  }

  // The mins that are added.
  static OCTAVO_INLINE __m256 min(const uint8_t* head, const uint8_t* group, int h) {
    const uint8_t* tail = group + F::kElementBytes;
    if constexpr (F::kScales == Scales::kSuperMin) {
      const __m256i m = _mm256_cvtepu8_epi32(load_8(tail + 16 + h * 8));
      const __m256 product = _mm256_mul_ps(load_halves(head + 32 + h * 16), _mm256_cvtepi32_ps(m));
      return _mm256_xor_ps(product, _mm256_set1_ps(-0.0f));
    } else if constexpr (F::kZeros) {
      const __m256i z = F::kScales == Scales::kZero
                            ? _mm256_cvtepu8_epi32(load_8(tail + 32 + h * 8))
                            : _mm256_cvtepi16_epi32(load_16(head + 32 + h * 16));
      const __m256 product = _mm256_mul_ps(scale(head, group, h), _mm256_cvtepi32_ps(z));
      return _mm256_xor_ps(product, _mm256_set1_ps(-0.0f));
    } else {
      return load_halves(tail + 32 + h * 16);
    }
  }
};

// The same with elements widened to bytes and scales to floats, for many rows of activations:
// a group is 8 column quads of 64 bytes, then float scales[16] (kHalves: [2][16], and those of the
// block in the head), then float mins[16].
template <SourceType S>
struct Expanded {
  using F = Format<S>;
  static constexpr size_t kHead = F::kHalvesMin ? 128 : F::kHalves ? 64 : 0;
  static constexpr size_t kScaleBytes = (F::kHalves ? 2 : 1) * 64;
  static constexpr size_t kMinBytes = F::kHalvesMin ? 128 : F::kMin ? 64 : 0;
  static constexpr size_t kBytes = 512 + kScaleBytes + kMinBytes;
  static constexpr size_t kPrefetched = 0;  // it lies in L2
  static_assert(kBytes + kHead / F::kSuper <= kExpandedGroupBytes);

  static OCTAVO_INLINE __m256i quad(const uint8_t*, const uint8_t* group, int j, int h) {
    return load(group + j * 64 + h * 32);
  }
  static OCTAVO_INLINE __m256 scale(const uint8_t* head, const uint8_t* group, int h) {
    return load_floats((F::kHalves ? head : group + 512) + h * 32);
  }
  static OCTAVO_INLINE __m256 half_scale(const uint8_t* group, int half, int h) {
    return load_floats(group + 512 + half * 64 + h * 32);
  }
  static OCTAVO_INLINE __m256 half_min(const uint8_t* group, int half, int h) {
    return load_floats(group + 512 + kScaleBytes + half * 64 + h * 32);
  }
  static OCTAVO_INLINE __m256 min_scale(const uint8_t* head, int h) {
    return load_floats(head + 64 + h * 32);
  }
  static OCTAVO_INLINE __m256 min(const uint8_t*, const uint8_t* group, int h) {
    return load_floats(group + 512 + kScaleBytes + h * 32);
  }
};

template <SourceType S>
void expand(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out) {
  using From = Stored<S>;
  using To = Expanded<S>;
  using F = Format<S>;
  for (int64_t g = begin; g < end; ++g) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    const bool starts_block = F::kHalves && g % F::kSuper == 0;
    uint8_t* to = out + (starts_block ? To::kHead : 0);
    for (int h = 0; h < 2; ++h) {
      uint8_t* rows = to + h * 32;
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) store(rows + j * 64, From::quad(head, group, j, h));
      if constexpr (F::kHalves) {
        if (starts_block) store_floats(out + h * 32, From::scale(head, group, h));
        if constexpr (F::kHalvesMin) {
          if (starts_block) store_floats(out + 64 + h * 32, From::min_scale(head, h));
          store_floats(rows + 640, From::half_min(group, 0, h));
          store_floats(rows + 704, From::half_min(group, 1, h));
        }
        store_floats(rows + 512, From::half_scale(group, 0, h));
        store_floats(rows + 576, From::half_scale(group, 1, h));
      } else {
        store_floats(rows + 512, From::scale(head, group, h));
        if constexpr (F::kMin) store_floats(rows + 576, From::min(head, group, h));
      }
    }
    out = to + To::kBytes;
  }
}

}  // namespace
}  // namespace octavo
