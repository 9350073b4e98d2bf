// Products of e4m3 floats with AVX-512 VNNI and VBMI: digits (wide.h) are looked up, 64 at a time.
//
// A few rows multiply the digits of magnitudes by activations that have the weights' signs; more
// rows share digits of the numbers themselves, with 4 added to the last, which is signed.
#include "kernels/kernels_avx512.h"

#if defined(__AVX512VBMI__)

#include <array>
#include <utility>

#include "kernels/panel_views_zmm.h"
#include "kernels/wide.h"

namespace octavo {
namespace {

using Terms = QuantizedRows::Terms;

// The digit of 64 magnitudes; the sign bits do not matter.
OCTAVO_INLINE __m512i digit(int d, __m512i codes) {
  const uint8_t* table = kE4m3Digits.of[d];
  return _mm512_permutex2var_epi8(load(table), codes, load(table + 64));
}

template <int T>
OCTAVO_INLINE void add_scaled(const __m512i (&sum)[T], __m512 scale, const Terms* terms,
                              __m512 (&c)[T]) {
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
    c[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), both, c[t]);
  }
}

OCTAVO_INLINE __m512i activations(const uint8_t* q, int t, int j) {
  int four;
  __builtin_memcpy(&four, q + t * kGroup + j * 4, 4);
  return _mm512_set1_epi32(four);
}

// A group as it is stored.
template <int T>
struct Stored1 {
  static OCTAVO_INLINE void step(const uint8_t* group, __m512 scale, const uint8_t* q,
                                 const Terms* terms, __m512 (&c)[T]) {
    __m512i sum[3][T];
#pragma GCC unroll 3
    for (int d = 0; d < 3; ++d) {
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) sum[d][t] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i codes = load(group + j * 64);
      const __mmask64 negative = _mm512_movepi8_mask(codes);
      const __m512i digits[3] = {digit(0, codes), digit(1, codes), digit(2, codes)};
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m512i a = activations(q, t, j);
        const __m512i turned = _mm512_mask_sub_epi8(a, negative, _mm512_setzero_si512(), a);
#pragma GCC unroll 3
        for (int d = 0; d < 3; ++d) {
          sum[d][t] = _mm512_dpbusd_epi32(sum[d][t], digits[d], turned);
        }
      }
    }
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m512i high = _mm512_add_epi32(sum[1][t], _mm512_slli_epi32(sum[2][t], 8));
      sum[0][t] = _mm512_add_epi32(sum[0][t], _mm512_slli_epi32(high, 8));
    }
    add_scaled<T>(sum[0], scale, terms, c);
  }
};

constexpr size_t kPlane = 512;  // bytes of a digit of a group
constexpr size_t kExpandedBytes = 3 * kPlane + 64;
static_assert(kExpandedBytes <= kWideGroupBytes);

// A group as digits.
template <int T>
OCTAVO_INLINE void expanded_step(const uint8_t* group, const uint8_t* q, const Terms* terms,
                                 __m512 (&c)[T]) {
  __m512i sum[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) sum[t] = _mm512_set1_epi32(terms[t].neg_sum * 4);
#pragma GCC unroll 3
  for (int d = 2; d >= 0; --d) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i w = load(group + static_cast<size_t>(d) * kPlane + j * 64);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        sum[t] = _mm512_dpbusd_epi32(sum[t], w, activations(q, t, j));
      }
    }
    if (d > 0) {
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) sum[t] = _mm512_slli_epi32(sum[t], 8);
    }
  }
  add_scaled<T>(sum, load_floats(group + 3 * kPlane), terms, c);
}

template <int T>
struct Rows {
  __mmask16 mask;
  __m512 c[T];

  OCTAVO_INLINE void start(const QuantTileArgs& a, int panel) {
    const int valid = a.valid - panel * kPanelRows;
    mask = valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << valid) - 1);
    const __mmask16 old = a.resume ? mask : static_cast<__mmask16>(0);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      c[t] = _mm512_maskz_loadu_ps(old, a.out + t * a.ldo + panel * kPanelRows);
    }
  }
  OCTAVO_INLINE void store(const QuantTileArgs& a, int panel) const {
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      _mm512_mask_storeu_ps(a.out + t * a.ldo + panel * kPanelRows, mask, c[t]);
    }
  }
};

OCTAVO_INLINE void ask_ahead(const uint8_t* at, size_t bytes) {
  for (size_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
  }
}

constexpr size_t kAhead = 2048;  // of what is read now

// T rows by P adjacent panels, group by group in turn.
template <SourceType S, int T, int P>
void stored_tile(const QuantTileArgs& a) {
  using F = Format<S>;
  Rows<T> rows[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) rows[p].start(a, p);
  const uint8_t *q = a.q, *terms = a.terms, *group = a.panel;
  __m512 scale[P];
  for (int64_t g = 0; g < a.groups; ++g) {
    if (g % F::kSuper == 0) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) scale[p] = load_floats(group + p * a.panel_bytes);
      group += F::kHead;
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint8_t* at = group + p * a.panel_bytes;
      // Of several panels, others come behind the last.
      const bool inside = P == 1 || at + kAhead < a.panel + (p + 1) * a.panel_bytes;
      const size_t beyond = kAhead + static_cast<size_t>(group - a.panel) - a.panel_bytes;
      ask_ahead(inside ? at + kAhead : a.next + p * a.next_bytes + beyond, kGroupBytes<S>);
      Stored1<T>::step(at, scale[p], q, reinterpret_cast<const Terms*>(terms), rows[p].c);
    }
    group += kGroupBytes<S>;
    q += a.group_stride;
    terms += a.group_stride;
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) rows[p].store(a, p);
}

constexpr int kStoredRows = 6;  // whose sums the registers hold

template <SourceType S, int T>
void stored_rows(const QuantTileArgs& a) {
  if constexpr (T > kStoredRows) {
    constexpr int kFirst = T / 2;
    stored_rows<S, kFirst>(a);
    QuantTileArgs rest = a;
    rest.q += kFirst * kGroup;
    rest.terms += kFirst * sizeof(Terms);
    rest.out += kFirst * a.ldo;
    stored_rows<S, T - kFirst>(rest);
  } else {
    stored_tile<S, T, 1>(a);
  }
}

template <int T>
void expanded_tile(const QuantTileArgs& a) {
  Rows<T> rows;
  rows.start(a, 0);
  const uint8_t *q = a.q, *terms = a.terms, *group = a.panel, *ahead = a.ahead;
  for (int64_t g = 0; g < a.groups; ++g) {
    if (ahead != nullptr) {
      ask_ahead(ahead, a.ahead_bytes);
      ahead += a.ahead_bytes;
    }
    expanded_step<T>(group, q, reinterpret_cast<const Terms*>(terms), rows.c);
    group += kExpandedBytes;
    q += a.group_stride;
    terms += a.group_stride;
  }
  rows.store(a, 0);
}

// Digit d of every code, its last digit with kAdded.
template <int kAdded>
struct CodeDigits {
  alignas(64) uint8_t of[3][256];
  constexpr CodeDigits() : of{} {
    for (int i = 0; i < 256; ++i) {
      const int number = kE4m3Numbers.of[i];
      of[0][i] = static_cast<uint8_t>(number);
      of[1][i] = static_cast<uint8_t>(number >> 8);
      of[2][i] = static_cast<uint8_t>((number >> 16) + kAdded);
    }
  }
};

template <SourceType S, int kAdded>
void expand_digits(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out) {
  using F = Format<S>;
  static constexpr CodeDigits<kAdded> kDigits{};
  for (int64_t g = begin; g < end; ++g, out += kExpandedBytes) {
    const uint8_t* head = panel + static_cast<size_t>(g / F::kSuper) * kSuperBytes<S>;
    const uint8_t* group = panel + group_offset<S>(g);
    for (int d = 0; d < 3; ++d) {
      const uint8_t* table = kDigits.of[d];
      const __m512i tables[4] = {load(table), load(table + 64), load(table + 128),
                                 load(table + 192)};
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const __m512i codes = load(group + j * 64);
        const __m512i positive = _mm512_permutex2var_epi8(tables[0], codes, tables[1]);
        const __m512i negative = _mm512_permutex2var_epi8(tables[2], codes, tables[3]);
        const __m512i both = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), positive, negative);
        _mm512_storeu_si512(out + static_cast<size_t>(d) * kPlane + j * 64, both);
      }
    }
    _mm512_storeu_ps(out + 3 * kPlane, load_floats(head));
  }
}

constexpr int kMaxRows = 12;
static_assert(kMaxRows <= QuantizedRows::kMaxTile);
using Kernels = std::array<QuantTileKernel, kMaxRows>;

template <SourceType S, int... T>
constexpr Kernels stored_kernels(std::integer_sequence<int, T...>) {
  return {stored_rows<S, T + 1>...};
}

template <int... T>
constexpr Kernels expanded_kernels(std::integer_sequence<int, T...>) {
  return {expanded_tile<T + 1>...};
}

constexpr auto kSequence = std::make_integer_sequence<int, kMaxRows>{};

template <SourceType S>
StreamKernel stream_kernel(int rows, int64_t panels) {
  static_assert(kStreamRowsAvx512 == 4);
  static constexpr Kernels kOne = stored_kernels<S>(kSequence);
  static constexpr QuantTileKernel kFour[2] = {stored_tile<S, 1, 4>, stored_tile<S, 2, 4>};
  static constexpr QuantTileKernel kTwo[4] = {stored_tile<S, 1, 2>, stored_tile<S, 2, 2>,
                                              stored_tile<S, 3, 2>, stored_tile<S, 4, 2>};
  if (panels >= 4 && rows <= 2) return {kFour[rows - 1], 4};
  if (panels >= 2 && rows <= 4) return {kTwo[rows - 1], 2};
  return {kOne[static_cast<size_t>(rows - 1)], 1};
}

// Calls f.template operator()<S>() for a wide format.
template <typename F>
auto with_wide(SourceType source, F&& f) {
  return source == SourceType::kE4M3 ? f.template operator()<SourceType::kE4M3>()
                                     : f.template operator()<SourceType::kE4M3_32>();
}

#undef OCTAVO_INLINE

}  // namespace

StreamKernel e4m3_stream_avx512vbmi(SourceType source, int rows, int64_t panels) {
  return with_wide(source, [&]<SourceType S>() { return stream_kernel<S>(rows, panels); });
}

QuantTileKernel e4m3_kernel_avx512vbmi(SourceType source, int rows) {
  return e4m3_stream_avx512vbmi(source, rows, 1).run;
}

ExpandedKernels e4m3_expanded_avx512vbmi(SourceType source) {
  static constexpr Kernels kKernels = expanded_kernels(kSequence);
  ExpandedKernels kernels{};
  kernels.expand = with_wide(source, [&]<SourceType S>() { return &expand_digits<S, 4>; });
  kernels.tiles = kKernels.data();
  kernels.from_rows = 24;
  kernels.most_rows = kMaxRows;
  kernels.groups = kWideGroups;
  return kernels;
}

ExpandFunction e4m3_expand_signed(SourceType source) {
  return with_wide(source, [&]<SourceType S>() -> ExpandFunction { return expand_digits<S, 0>; });
}

}  // namespace octavo

#endif
