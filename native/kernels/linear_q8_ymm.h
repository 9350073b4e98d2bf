// Quantized products on 256-bit registers: up to 6 rows of activations by one panel. The file of an
// instruction set includes this with its way to multiply and add bytes, `Dot`:
//
//   kSplitsBytes          whether bytes are multiplied nibble by nibble
//   start<F>(terms, half) what the sums of one scale's worth of columns of a row start from
//   kStarts<F>            whether that is anything but zero
//   first(w, a)           the products of 32 weights and 32 activations, summed where it likes
//   add(sum, w, a)        the same added to a sum
//   finish(sum)           sum as eight int32
//   negative(terms, half) -(the sum of the activations of a half), as eight int32
//   kCorrects<F>          whether correction<F>(terms) is still to be added to those
//   finish_bytes(low, high)       the same of the sums of low and high nibbles
//   add_words(sum, w, a)  the products of 16 words, summed in pairs, added to eight int32
//
// Sums of 6 rows by 16 weight rows fill 12 of 16 registers; two more hold weights, one a broadcast
// of a row and one a product. The floats wait in memory: a load and a store a group are cheap.
#pragma once

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/linear_wide_ymm.h"
#include "kernels/panel_views_ymm.h"

namespace octavo {
namespace {

// View: how the panel is stored.
template <class Dot, class View, int T>
struct Tile {
  using F = typename View::F;
  using Terms = QuantizedRows::Terms;
  static constexpr size_t kAhead = 1344;  // of what is prefetched
  static constexpr bool kSplit = Dot::kSplitsBytes && F::kWide;

  // The two registers of weights that meet each broadcast of a row: rows 0..7 and 8..15, or the low
  // and the high nibbles of rows 8h..8h+7.
  static OCTAVO_INLINE void load_pair(const uint8_t* head, const uint8_t* group, int quad, int h,
                                      __m256i (&w)[2]) {
    if constexpr (kSplit) {
      const __m256i low = _mm256_set1_epi8(15);
      const __m256i line = View::quad(head, group, quad, h);
      w[0] = _mm256_and_si256(line, low);
      w[1] = _mm256_and_si256(_mm256_srli_epi16(line, 4), low);
    } else {
      w[0] = View::quad(head, group, quad, 0);
      w[1] = View::quad(head, group, quad, 1);
    }
  }

  // sum: of each row and each of the pair, over kQuads column quads from kQuads * half on.
  template <int kQuads>
  static OCTAVO_INLINE void multiply(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                     const Terms* terms, int half, int h, __m256i (&sum)[T][2]) {
    constexpr bool kStarts = Dot::template kStarts<F>;
    if constexpr (kStarts) {
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m256i start = Dot::template start<F>(terms[t], half);
        sum[t][0] = kSplit ? _mm256_setzero_si256() : start;
        sum[t][1] = start;
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kQuads; ++j) {
      // Loading twice is free; keeping a value while there are no registers left is not.
      asm volatile("" ::: "memory");
      const int quad = half * kQuads + j;
      __m256i w[2];
      load_pair(head, group, quad, h, w);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m256i a = load_four(q + t * kGroup + quad * 4);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          sum[t][i] = j == 0 && !kStarts ? Dot::first(w[i], a) : Dot::add(sum[t][i], w[i], a);
          asm volatile("" : "+x"(sum[t][i]));  // else GCC makes a tree of the sums, and spills
        }
      }
    }
    asm volatile("" ::: "memory");
  }

  // The float step of the contract.
  static OCTAVO_INLINE void add_scaled(__m256i sum, __m256 scale, __m256 min, const Terms& terms,
                                       __m256& c) {
    const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(terms.scale));
    c = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), both, c);
    if constexpr (F::kMin) c = _mm256_fmadd_ps(min, _mm256_set1_ps(terms.sum), c);
  }

  static OCTAVO_INLINE __m256 min_of(const uint8_t* head, const uint8_t* group, int h) {
    if constexpr (F::kMin) return View::min(head, group, h);
    return _mm256_setzero_ps();
  }

  // Adds a group.
  static OCTAVO_INLINE void step(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                 const Terms* terms, __m256 (&c)[2][T]) {
    __m256i sum[T][2];
    if constexpr (!kSplit) multiply<8>(head, group, q, terms, 0, 0, sum);
    __m256i correction[T];
    if constexpr (Dot::template kCorrects<F>) {
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) correction[t] = Dot::template correction<F>(terms[t]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      if constexpr (kSplit) multiply<8>(head, group, q, terms, 0, h, sum);
      const __m256 scale = View::scale(head, group, h);
      const __m256 min = min_of(head, group, h);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        __m256i total;
        if constexpr (kSplit) {
          total = Dot::finish_bytes(sum[t][0], sum[t][1]);
        } else {
          total = Dot::finish(sum[t][h]);
          if constexpr (Dot::template kCorrects<F>) {
            total = _mm256_add_epi32(total, correction[t]);
          }
        }
        add_scaled(total, scale, min, terms[t], c[h][t]);
      }
    }
  }

  // kHalves: the integer sums of half `half` of a group times its scale, of rows 8h..8h+7. Integers
  // in floats, below 2^24, are exact.
  template <int kHalf>
  static OCTAVO_INLINE void scale_half(const uint8_t* group, int h, const __m256i (&sum)[T][2],
                                       __m256 (&x)[2][T]) {
    const __m256 scale = View::half_scale(group, kHalf, h);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      __m256i total;
      if constexpr (kSplit) {
        total = Dot::finish_bytes(sum[t][0], sum[t][1]);
      } else {
        total = Dot::finish(sum[t][h]);
      }
      const __m256 product = _mm256_cvtepi32_ps(total);
      if constexpr (kHalf == 0) {
        x[h][t] = _mm256_mul_ps(product, scale);
      } else {
        x[h][t] = _mm256_fmadd_ps(product, scale, x[h][t]);
      }
    }
  }

  template <int kHalf>
  static OCTAVO_INLINE void multiply_half(const uint8_t* head, const uint8_t* group,
                                          const uint8_t* q, const Terms* terms, __m256 (&x)[2][T]) {
    __m256i sum[T][2];
    if constexpr (!kSplit) multiply<4>(head, group, q, terms, kHalf, 0, sum);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      if constexpr (kSplit) multiply<4>(head, group, q, terms, kHalf, h, sum);
      scale_half<kHalf>(group, h, sum, x);
    }
  }

  // kHalves: adds a group to the sums s of its block.
  static OCTAVO_INLINE void step_halves(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                        const Terms* terms, __m256 (&s)[2][T]) {
    __m256 x[2][T];
    multiply_half<0>(head, group, q, terms, x);
    multiply_half<1>(head, group, q, terms, x);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        s[h][t] = _mm256_fmadd_ps(x[h][t], _mm256_set1_ps(terms[t].scale), s[h][t]);
      }
    }
  }

  // kHalvesMin: adds a group's mins to the sums m of its block; exact likewise.
  static OCTAVO_INLINE void step_mins(const uint8_t* group, const Terms* terms, __m256 (&m)[2][T]) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m256 first = _mm256_cvtepi32_ps(Dot::negative(terms[t], 0));
      const __m256 second = _mm256_cvtepi32_ps(Dot::negative(terms[t], 1));
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256 x = _mm256_mul_ps(View::half_min(group, 0, h), first);
        const __m256 both = _mm256_fmadd_ps(View::half_min(group, 1, h), second, x);
        m[h][t] = _mm256_fmadd_ps(both, _mm256_set1_ps(terms[t].scale), m[h][t]);
      }
    }
  }

  static OCTAVO_INLINE void start_rows(const QuantTileArgs& a, int t, __m256 (&c)[2][T]) {
    alignas(32) float rows[kPanelRows] = {};
    if (a.resume) {
      __builtin_memcpy(rows, a.out + t * a.ldo, static_cast<size_t>(a.valid) * sizeof(float));
    }
    c[0][t] = _mm256_load_ps(rows);
    c[1][t] = _mm256_load_ps(rows + 8);
  }

  static OCTAVO_INLINE void store_rows(const __m256 (&c)[2][T], const QuantTileArgs& a) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      float* out = a.out + t * a.ldo;
      if (a.valid >= kPanelRows) {
        _mm256_storeu_ps(out, c[0][t]);
        _mm256_storeu_ps(out + 8, c[1][t]);
      } else {
        alignas(32) float rows[kPanelRows];
        _mm256_store_ps(rows, c[0][t]);
        _mm256_store_ps(rows + 8, c[1][t]);
        __builtin_memcpy(out, rows, static_cast<size_t>(a.valid) * sizeof(float));
      }
    }
  }

  static void run(const QuantTileArgs& a) {
    __m256 c[2][T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) start_rows(a, t, c);
    const uint8_t* q = a.q;
    const uint8_t* terms = a.terms;
    const uint8_t* group = a.panel;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      const uint8_t* head = group;
      group += View::kHead;
      __m256 s[2][T];
      __m256 m[2][T];
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) s[0][t] = s[1][t] = m[0][t] = m[1][t] = _mm256_setzero_ps();
      const int64_t count = groups_left<F>(a.groups - super);
#pragma GCC unroll 1
      for (int64_t g = 0; g < count; ++g) {
        for (size_t b = 0; b < View::kPrefetched; b += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + b), _MM_HINT_T0);
        }
        if constexpr (F::kHalves) {
          step_halves(head, group, q, reinterpret_cast<const Terms*>(terms), s);
          if constexpr (F::kHalvesMin) step_mins(group, reinterpret_cast<const Terms*>(terms), m);
        } else {
          step(head, group, q, reinterpret_cast<const Terms*>(terms), c);
        }
        group += View::kBytes;
        q += a.group_stride;
        terms += a.group_stride;
      }
      if constexpr (F::kHalves) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const __m256 scale = View::scale(head, group, h);
#pragma GCC unroll 6
          for (int t = 0; t < T; ++t) c[h][t] = _mm256_fmadd_ps(s[h][t], scale, c[h][t]);
          if constexpr (F::kHalvesMin) {
            const __m256 min_scale = View::min_scale(head, h);
#pragma GCC unroll 6
            for (int t = 0; t < T; ++t) c[h][t] = _mm256_fmadd_ps(m[h][t], min_scale, c[h][t]);
          }
        }
      }
    }
    store_rows(c, a);
  }
};

constexpr int kMaxRows = 6;

// The kernels of 1, 2, ... rows.
template <class Dot, class View, int... T>
const QuantTileKernel* tiles(std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{Tile<Dot, View, T + 1>::run...};
  return kTiles.data();
}

template <class Dot>
QuantTileKernel quant_kernel(SourceType source, int rows) {
  QuantTileKernel kernel = nullptr;
  with_format(source, [&]<SourceType S>() {
    if constexpr (kIsWide<S>) {
      kernel =
          wide_tiles<Dot, StoredParts<S>>(std::make_integer_sequence<int, kMaxRows>{})[rows - 1];
    } else {
      kernel = tiles<Dot, Stored<S>>(std::make_integer_sequence<int, kMaxRows>{})[rows - 1];
    }
  });
  return kernel;
}

// It pays soon where a weight's bits lie in two places, later for nibbles, never for bytes.
template <class Dot>
ExpandedKernels expanded_kernels(SourceType source, int64_t) {
  ExpandedKernels kernels{};
  with_format(source, [&]<SourceType S>() {
    if constexpr (kIsWide<S>) {
      constexpr auto kRows = std::make_integer_sequence<int, kMaxRows>{};
      kernels = {expand_parts<S>, wide_tiles<Dot, ExpandedParts<S>>(kRows), 18, kMaxRows};
      kernels.groups = kWideGroups;
    } else if constexpr (!Format<S>::kBytesOnly) {
      constexpr int64_t kFromRows = Format<S>::kPlanes > 0 ? 18 : 48;
      kernels = {expand<S>, tiles<Dot, Expanded<S>>(std::make_integer_sequence<int, kMaxRows>{}),
                 kFromRows, kMaxRows};
    }
  });
  return kernels;
}

#undef OCTAVO_INLINE

}  // namespace
}  // namespace octavo
