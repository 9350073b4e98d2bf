// Quantized products with AVX-512 VNNI: up to 12 rows of activations by one panel.
//
// A line of a panel is one register; vpdpbusd multiplies it by a 4-byte broadcast of a row. The
// integer and the float sums of 12 rows fill 24 registers and nothing is stored before the end: on
// Zen 4 vpdpbusd and float multiplication share two of four pipes and a 64-byte store costs about
// as much as two of them, while broadcasts, shifts, masks, conversions and additions are free. So
// what counts is 8 vpdpbusd against 2 (3 with mins) float multiplications a group.
#include "kernels/kernels_avx512.h"

#if defined(__AVX512VNNI__)

#include <array>
#include <utility>

#include "kernels/panel_views_zmm.h"

namespace octavo {
namespace {

// Most rows at once of formats that need more than two registers a row.
constexpr int kHalvesRows = 9;
constexpr int kHalvesMinRows = 6;

// View: how the panel is stored.
template <class View, int T>
struct Tile {
  using F = typename View::F;
  using Terms = QuantizedRows::Terms;

  // Starting value of an accumulator: -(zero point) * (sum of the activations it will meet).
  static OCTAVO_INLINE __m512i start(const Terms& terms, int half) {
    if constexpr (F::kZeroBits < 0) {
      return _mm512_setzero_si512();
    } else {
      __m512i neg = _mm512_set1_epi32(terms.neg_sum);
      if constexpr (F::kHalves) {
        const __m512i first = _mm512_set1_epi32(terms.neg_sum_first);
        neg = half == 0 ? first : _mm512_sub_epi32(neg, first);
      }
      return _mm512_slli_epi32(neg, F::kZeroBits);
    }
  }

  // acc: the integer sums over kCount column quads from quad kCount * half on.
  template <int kCount>
  static OCTAVO_INLINE void multiply(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                     const Terms* terms, int half, __m512i (&acc)[T]) {
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) acc[t] = start(terms[t], half);
#pragma GCC unroll 8
    for (int j = half * kCount; j < half * kCount + kCount; ++j) {
      // Loading a line twice is free; keeping it in a register while there are none left is not.
      asm volatile("" ::: "memory");
      const __m512i w = View::quad(head, group, j);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        int four;
        __builtin_memcpy(&four, q + t * kGroup + j * 4, 4);
        acc[t] = _mm512_dpbusd_epi32(acc[t], w, _mm512_set1_epi32(four));
      }
    }
  }

  // Adds a group.
  static OCTAVO_INLINE void step(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                 const Terms* terms, __m512 (&c)[T]) {
    __m512i acc[T];
    multiply<8>(head, group, q, terms, 0, acc);
    const __m512 scale = View::scale(head, group);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
      c[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t]), both, c[t]);
    }
    if constexpr (F::kMin) {
      const __m512 min = View::min(head, group);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        c[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(terms[t].sum), c[t]);
      }
    }
  }

  // kHalves: adds a group to the sums s of its block. Integers in floats, below 2^24, are exact.
  static OCTAVO_INLINE void step_halves(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                        const Terms* terms, __m512 (&s)[T]) {
    __m512i acc[T];
    multiply<4>(head, group, q, terms, 0, acc);
    __m512 x[T];
    const __m512 first = View::half_scale(group, 0);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) x[t] = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), first);
    multiply<4>(head, group, q, terms, 1, acc);
    const __m512 second = View::half_scale(group, 1);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      x[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t]), second, x[t]);
      s[t] = _mm512_fmadd_ps(x[t], _mm512_set1_ps(terms[t].scale), s[t]);
    }
  }

  // kHalvesMin: adds a group's mins to the sums m of its block; exact likewise.
  static OCTAVO_INLINE void step_mins(const uint8_t* group, const Terms* terms, __m512 (&m)[T]) {
    const __m512 first = View::half_min(group, 0);
    const __m512 second = View::half_min(group, 1);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const int neg = terms[t].neg_sum_first;
      const __m512 x = _mm512_mul_ps(first, _mm512_set1_ps(static_cast<float>(neg)));
      const __m512 rest = _mm512_set1_ps(static_cast<float>(terms[t].neg_sum - neg));
      m[t] =
          _mm512_fmadd_ps(_mm512_fmadd_ps(second, rest, x), _mm512_set1_ps(terms[t].scale), m[t]);
    }
  }

  static void run(const QuantTileArgs& a) {
    constexpr int kMost = F::kHalvesMin ? kHalvesMinRows : F::kHalves ? kHalvesRows : T;
    if constexpr (T > kMost) {
      // More registers a row than two: so many rows at once would spill.
      constexpr int kFirst = T / 2;
      Tile<View, kFirst>::run(a);
      QuantTileArgs rest = a;
      rest.q += kFirst * kGroup;
      rest.terms += kFirst * sizeof(Terms);
      rest.out += kFirst * a.ldo;
      Tile<View, T - kFirst>::run(rest);
    } else {
      run_panels<1>(a);
    }
  }

  // P adjacent panels as so many streams of memory.
  template <int P>
  static void run_streams(const QuantTileArgs& a) {
    run_panels<P>(a);
  }

  // P adjacent panels, group by group in turn.
  template <int P>
  static OCTAVO_INLINE void run_panels(const QuantTileArgs& a) {
    __mmask16 masks[P];
    __m512 c[P][T];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const int valid = a.valid - p * kPanelRows;
      masks[p] = valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << valid) - 1);
      const __mmask16 old = a.resume ? masks[p] : static_cast<__mmask16>(0);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        c[p][t] = _mm512_maskz_loadu_ps(old, a.out + t * a.ldo + p * kPanelRows);
      }
    }
    const uint8_t* q = a.q;
    const uint8_t* terms = a.terms;
    const uint8_t* group = a.panel;
    [[maybe_unused]] const uint8_t* ahead = a.ahead;
    for (int64_t super = 0; super < a.groups; super += F::kSuper) {
      const uint8_t* head = group;
      if constexpr (P > 1 && View::kHead > 0) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) ask_for_stream<View::kHead>(a, p, group);
      }
      group += View::kHead;
      __m512 s[P][T];
      __m512 m[P][T];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) s[p][t] = m[p][t] = _mm512_setzero_ps();
      }
      const int64_t count = groups_left<F>(a.groups - super);
#pragma GCC unroll 1
      for (int64_t g = 0; g < count; ++g) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const uint8_t* at = group + p * a.panel_bytes;
          if constexpr (P == 1 && View::kPrefetched == 0) {
            if (ahead != nullptr) ahead = ask_for(ahead, a.ahead_bytes);
          } else if constexpr (P == 1) {
            ask_ahead(at);
          } else {
            ask_for_stream<View::kPrefetched>(a, p, group);
          }
          add_group(head + p * a.panel_bytes, at, q, reinterpret_cast<const Terms*>(terms), c[p],
                    s[p], m[p]);
        }
        group += View::kBytes;
        q += a.group_stride;
        terms += a.group_stride;
      }
      if constexpr (F::kHalves) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) add_block(head + p * a.panel_bytes, group, s[p], m[p], c[p]);
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        _mm512_mask_storeu_ps(a.out + t * a.ldo + p * kPanelRows, masks[p], c[p][t]);
      }
    }
  }

  // Asks memory for `kBytes` that lie kStreamAhead behind those of panel p that are to come when
  // the first panel is read at `at`; behind its end, for those of the panel that takes its place.
  static constexpr size_t kStreamAhead = 2560;
  template <size_t kBytes>
  static OCTAVO_INLINE void ask_for_stream(const QuantTileArgs& a, int p, const uint8_t* at) {
    const size_t from = static_cast<size_t>(at - a.panel) + kStreamAhead;
    const uint8_t* here = a.panel + p * a.panel_bytes + from;
    const uint8_t* next = a.next + p * a.next_bytes + (from - a.panel_bytes);
    if (from + kBytes <= a.panel_bytes || from >= a.panel_bytes) {
      const uint8_t* all = from < a.panel_bytes ? here : next;
      for (size_t b = 0; b < kBytes; b += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(all + b), _MM_HINT_T0);
      }
    } else {
      for (size_t b = 0; b < kBytes; b += 64) {
        const uint8_t* line = from + b < a.panel_bytes ? here : next;
        _mm_prefetch(reinterpret_cast<const char*>(line + b), _MM_HINT_T0);
      }
    }
  }

  // Asks the second-level cache for `bytes` that are to be unpacked; returns their end.
  static OCTAVO_INLINE const uint8_t* ask_for(const uint8_t* at, size_t bytes) {
    for (size_t b = 0; b < bytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T1);
    }
    return at + bytes;
  }

  // Asks memory for what lies ahead of a group.
  static constexpr size_t kAhead = 1344;
  static OCTAVO_INLINE void ask_ahead(const uint8_t* group) {
    for (size_t b = 0; b < View::kPrefetched; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + b), _MM_HINT_T0);
    }
  }

  // To the sums c, or (kHalves) to those of its block.
  static OCTAVO_INLINE void add_group(const uint8_t* head, const uint8_t* group, const uint8_t* q,
                                      const Terms* terms, __m512 (&c)[T], __m512 (&s)[T],
                                      __m512 (&m)[T]) {
    if constexpr (F::kHalves) {
      step_halves(head, group, q, terms, s);
      if constexpr (F::kHalvesMin) step_mins(group, terms, m);
    } else {
      step(head, group, q, terms, c);
    }
  }

  // kHalves: the sums of a block to c.
  static OCTAVO_INLINE void add_block(const uint8_t* head, const uint8_t* group,
                                      const __m512 (&s)[T], const __m512 (&m)[T], __m512 (&c)[T]) {
    const __m512 scale = View::scale(head, group);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(s[t], scale, c[t]);
    if constexpr (F::kHalvesMin) {
      const __m512 min_scale = View::min_scale(head);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(m[t], min_scale, c[t]);
    }
  }
};

constexpr int kMaxRows = 12;

// The kernels of 1, 2, ... rows.
template <class View, int... T>
const QuantTileKernel* tiles(std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{Tile<View, T + 1>::run...};
  return kTiles.data();
}

QuantTileKernel quant_kernel(SourceType source, int rows) {
  QuantTileKernel kernel = nullptr;
  with_format(source, [&]<SourceType S>() {
    if constexpr (kIsWide<S>) {
      kernel = wide_kernel_avx512(source, rows);
    } else {
      kernel = tiles<Stored<S>>(std::make_integer_sequence<int, kMaxRows>{})[rows - 1];
    }
  });
  return kernel;
}

ExpandedKernels expanded_kernels(SourceType source, int64_t) {
  ExpandedKernels kernels{};
  with_format(source, [&]<SourceType S>() {
    // Unpacking is free beside vpdpbusd, until a tile has half as many rows.
    if constexpr (kIsWide<S>) {
      kernels = wide_expanded_avx512(source);
    } else if constexpr (Format<S>::kHalves) {
      constexpr int64_t kFromRows = 64;
      kernels = {expand<S>, tiles<Expanded<S>>(std::make_integer_sequence<int, kMaxRows>{}),
                 kFromRows, kMaxRows};
    }
  });
  return kernels;
}

// Whether the sums of so many rows by so many panels, those of blocks too, stay in registers.
template <class View, int kRows, int kPanels>
constexpr bool fits_registers() {
  using F = typename View::F;
  const int sums = kRows * kPanels * (F::kHalvesMin ? 3 : F::kHalves ? 2 : 1);
  return sums + kRows * (F::kHalves ? 2 : 1) + 4 <= 32;
}

// The kernel of T rows by the most of `panels` panels that are best read at a time.
template <class View, int T>
StreamKernel stream_kernel(int64_t panels) {
  if constexpr (fits_registers<View, T, 4>()) {
    if (panels >= 4) return {Tile<View, T>::template run_streams<4>, 4};
  }
  if constexpr (fits_registers<View, T, 2>()) {
    if (panels >= 2) return {Tile<View, T>::template run_streams<2>, 2};
  }
  return {Tile<View, T>::run, 1};
}

#undef OCTAVO_INLINE

}  // namespace

StreamKernel stream_kernel_avx512(SourceType source, int rows, int64_t panels) {
  StreamKernel kernel{};
  with_format(source, [&]<SourceType S>() {
    if constexpr (kIsWide<S>) {
      kernel = wide_stream_avx512(source, rows, panels);
    } else {
      using View = Stored<S>;
      static_assert(kStreamRowsAvx512 == 4);
      kernel = rows == 1   ? stream_kernel<View, 1>(panels)
               : rows == 2 ? stream_kernel<View, 2>(panels)
               : rows == 3 ? stream_kernel<View, 3>(panels)
                           : stream_kernel<View, 4>(panels);
    }
  });
  return kernel;
}

const KernelTable& avx512_kernels() {
  static const KernelTable table{
      .isa = "avx512",
      .quant_rows = kMaxRows,
      .float_rows = kFloatRowsAvx512,
      .quant = quant_kernel,
      .floats = float_kernel_avx512,
      .expanded = expanded_kernels,
      .quantize_group = quantize_group_avx512,
      .quantize_four = quantize_four_avx512,
      .int8_loop = int8_loop_avx512,
      .read_loop = read_loop_avx512,
      .read_near_loop = read_near_loop_avx512,
      .f32_loop = f32_loop_avx512,
      .bf16_loop = __builtin_cpu_supports("avx512bf16") ? bf16_loop_avx512 : nullptr};
  return table;
}

}  // namespace octavo

#endif
