// Panels read through 512-bit registers, as they are stored or unpacked ahead. For
// linear_q8_avx512.cpp.
#pragma once

#include <immintrin.h>

#include "kernels/format.h"
#include "kernels/kernel_table.h"

namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

OCTAVO_INLINE __m512i load(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

OCTAVO_INLINE __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

OCTAVO_INLINE __m512 load_floats(const uint8_t* p) {
  return _mm512_loadu_ps(p);
}

OCTAVO_INLINE __m256i load_256(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

OCTAVO_INLINE __m512i unsigned_bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

OCTAVO_INLINE __m512i signed_bytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// A panel as it is stored, all 16 rows at a time.
template <SourceType S>
struct Stored {
  using F = Format<S>;
  static constexpr size_t kHead = F::kHead;
  static constexpr size_t kBytes = kGroupBytes<S>;  // of a group
  static constexpr size_t kPrefetched = kBytes;     // of a later group, while one is multiplied

  // The line of column quad j of a group.
  static OCTAVO_INLINE __m512i quad(const uint8_t* head, const uint8_t* group, int j) {
    if constexpr (F::kBytesOnly) return load(group + j * 64);
    constexpr int kBits = F::kLineBits;
    constexpr int kLineQuads = 8 / kBits;
    const __m512i low = _mm512_set1_epi8((1 << kBits) - 1);
    const __m512i line = load(group + j / kLineQuads * 64);
    const int at = j % kLineQuads * kBits;
    const __m512i moved = at == 0 ? line : _mm512_srli_epi16(line, static_cast<unsigned>(at));
    const __m512i element = _mm512_and_si512(moved, low);
    if constexpr (F::kCodes) {
      const auto* table = reinterpret_cast<const __m128i*>(code_table<S>(head));
      return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table)), element);
    } else if constexpr (F::kPlanes == 0) {
      return element;
    } else {
      constexpr int kQuads = 8 / F::kPlanes;
      const __m512i plane = load(group + F::kLines * 64 + j / kQuads * 64);
      const int shift = j % kQuads * F::kPlanes - kBits;  // to the right
      const __m512i placed = shift == 0  ? plane
                             : shift < 0 ? _mm512_slli_epi16(plane, static_cast<unsigned>(-shift))
                                         : _mm512_srli_epi16(plane, static_cast<unsigned>(shift));
      const __m512i high = _mm512_set1_epi8(((1 << F::kPlanes) - 1) << kBits);
      return _mm512_or_si512(element, _mm512_and_si512(placed, high));
    }
  }

  // Scale of each of the 16 rows: of the group, or (kHalves) of the block of 256.
  static OCTAVO_INLINE __m512 scale(const uint8_t* head, const uint8_t* group) {
    const uint8_t* tail = group + F::kElementBytes;
    if constexpr (F::kFloatHead) {
      return load_floats(head);
    } else if constexpr (F::kHalves || F::kScales == Scales::kBlock ||
                         F::kScales == Scales::kZeroBlock) {
      return load_halves(head);
    } else if constexpr (F::kScales == Scales::kSuperMin) {
      return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(unsigned_bytes(tail)));
    } else if constexpr (F::kScales == Scales::kSuper) {
      return _mm512_mul_ps(load_halves(head), _mm512_cvtepi32_ps(signed_bytes(tail)));
    } else if constexpr (F::kScales == Scales::kPower) {
      // As power_scale: 2^-128 and 2^-127 by shifting a bit, from there on by counting exponents.
      const __m512i e = unsigned_bytes(tail);
      const __m512i two = _mm512_set1_epi32(2);
      const __m512i base = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), _mm512_min_epi32(e, two));
      const __m512i above = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_max_epi32(e, two), two), 23);
      return _mm512_castsi512_ps(_mm512_add_epi32(base, above));
    } else {
      return load_halves(tail);
    }
  }

  // kHalves: the scale of half `half` of the group.
  static OCTAVO_INLINE __m512 half_scale(const uint8_t* group, int half) {
    const uint8_t* bytes = group + F::kElementBytes + half * 16;
    if constexpr (F::kHalvesFloat) {  // as small_e4m3
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
      const __m256i moved = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 7);
      return _mm512_cvtph_ps(_mm256_and_si256(moved, _mm256_set1_epi16(0x3fff)));
    } else if constexpr (F::kHalvesMin) {
      return _mm512_cvtepi32_ps(_mm512_and_si512(unsigned_bytes(bytes), _mm512_set1_epi32(15)));
    } else {
      return _mm512_cvtepi32_ps(signed_bytes(bytes));
    }
  }

  // kHalvesMin: the whole-numbered min of half `half` of the group, and the block's scale of mins.
  static OCTAVO_INLINE __m512 half_min(const uint8_t* group, int half) {
    const uint8_t* bytes = group + F::kElementBytes + half * 16;
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(unsigned_bytes(bytes), 4));
  }
  static OCTAVO_INLINE __m512 min_scale(const uint8_t* head) { return load_halves(head + 32); }

  // The min that is added, of each of the 16 rows.
  static OCTAVO_INLINE __m512 min(const uint8_t* head, const uint8_t* group) {
    const uint8_t* tail = group + F::kElementBytes;
    if constexpr (F::kScales == Scales::kSuperMin) {
      const __m512 m = _mm512_cvtepi32_ps(unsigned_bytes(tail + 16));
      return _mm512_xor_ps(_mm512_mul_ps(load_halves(head + 32), m), _mm512_set1_ps(-0.0f));
    } else if constexpr (F::kZeros) {
      const __m512i z = F::kScales == Scales::kZero ? unsigned_bytes(tail + 32)
                                                    : _mm512_cvtepi16_epi32(load_256(head + 32));
      const __m512 product = _mm512_mul_ps(scale(head, group), _mm512_cvtepi32_ps(z));
      return _mm512_xor_ps(product, _mm512_set1_ps(-0.0f));
    } else {
      return load_halves(tail + 32);
    }
  }
};

// The same with elements widened to bytes and scales to floats, for many rows of activations: a
// group is 8 lines, then float scales[16] (kHalves: [2][16], and those of the block in the head),
// then float mins[16] (kHalvesMin: [2][16], and the block's scales of mins in the head).
template <SourceType S>
struct Expanded {
  using F = Format<S>;
  static constexpr size_t kHead = F::kHalvesMin ? 128 : F::kHalves ? 64 : 0;
  static constexpr size_t kScaleBytes = (F::kHalves ? 2 : 1) * 64;
  static constexpr size_t kMinBytes = F::kHalvesMin ? 128 : F::kMin ? 64 : 0;
  static constexpr size_t kBytes = 512 + kScaleBytes + kMinBytes;
  static constexpr size_t kPrefetched = 0;  // it lies in L2
  static_assert(kBytes + kHead / F::kSuper <= kExpandedGroupBytes);

  static OCTAVO_INLINE __m512i quad(const uint8_t*, const uint8_t* group, int j) {
    return load(group + j * 64);
  }
  static OCTAVO_INLINE __m512 scale(const uint8_t* head, const uint8_t* group) {
    return load_floats(F::kHalves ? head : group + 512);
  }
  static OCTAVO_INLINE __m512 half_scale(const uint8_t* group, int half) {
    return load_floats(group + 512 + half * 64);
  }
  static OCTAVO_INLINE __m512 half_min(const uint8_t* group, int half) {
    return load_floats(group + 512 + kScaleBytes + half * 64);
  }
  static OCTAVO_INLINE __m512 min_scale(const uint8_t* head) { return load_floats(head + 64); }
  static OCTAVO_INLINE __m512 min(const uint8_t*, const uint8_t* group) {
    return load_floats(group + 512 + kScaleBytes);
  }
};

// kSigned: elements less their zero points.
template <SourceType S, bool kSigned = false>
void expand(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out) {
  using From = Stored<S>;
  using To = Expanded<S>;
  using F = Format<S>;
  for (int64_t g = begin; g < end; ++g) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    if constexpr (F::kHalves) {
      if (g % F::kSuper == 0) {
        _mm512_storeu_ps(out, From::scale(head, group));
        if constexpr (F::kHalvesMin) _mm512_storeu_ps(out + 64, From::min_scale(head));
        out += To::kHead;
      }
      if constexpr (F::kHalvesMin) {
        _mm512_storeu_ps(out + 640, From::half_min(group, 0));
        _mm512_storeu_ps(out + 704, From::half_min(group, 1));
      }
      _mm512_storeu_ps(out + 512, From::half_scale(group, 0));
      _mm512_storeu_ps(out + 576, From::half_scale(group, 1));
    } else {
      _mm512_storeu_ps(out + 512, From::scale(head, group));
      if constexpr (F::kMin) _mm512_storeu_ps(out + 576, From::min(head, group));
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i quad = From::quad(head, group, j);
      const __m512i zero = _mm512_set1_epi8(static_cast<char>(kSigned ? F::kZeroPoint : 0));
      _mm512_storeu_si512(out + j * 64, kSigned ? _mm512_sub_epi8(quad, zero) : quad);
    }
    out += To::kBytes;
  }
}

}  // namespace
}  // namespace octavo
