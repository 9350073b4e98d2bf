// Quantized products of many rows with AMX: 16 rows of activations by one panel, unpacked.
//
// A group of an unpacked panel, 8 lines of [16 weight rows][4], is a tile of B as it stands, and 16
// rows of a group of activations are one of A. Their product is a tile of int32, exact, which has
// to pass through memory to be scaled: AMX has no float steps of its own, and groups differ in
// their scales. So tiles are 32 columns deep, half of what they could be. A tile product and the
// store of the one before it take 20 cycles in that order, 32 in the other. What counts is the
// float steps of its 16 rows: where tiles are in use, multiplications and conversions of 512 bits
// have one pipe instead of two, additions and integers still have both, less what tiles' loads and
// stores take.
#include "kernels/kernel_table.h"

#if defined(__AMX_INT8__)

#include "kernels/amx_products.h"
#include "kernels/kernels_amx.h"
#include "kernels/kernels_avx512.h"

namespace octavo {
namespace {

// Tiles 0 and 1 are sums; 2 and 3 hold activations, 4 and 5 weights, of `columns` columns.
constexpr TileShapes tile_shapes(int columns) {
  TileShapes shapes;
  for (int i = 0; i < 2; ++i) {
    shapes.shape(i, kTileRows, kAmxBytes);
    shapes.shape(2 + i, kTileRows, columns);
    shapes.shape(4 + i, columns / 4, kAmxBytes);
  }
  return shapes;
}

template <int kColumns>
void open_for() {
  static constexpr TileShapes kShapes = tile_shapes(kColumns);
  open_tiles(kShapes);
}

// The product of 16 rows of activations and a group, or a half of one, into tile `i`.
template <int i>
OCTAVO_INLINE void multiply(const uint8_t* q, const uint8_t* lines) {
  tile_load<2 + i>(q, kGroup);
  tile_load<4 + i>(lines, 64);
  tile_zero<i>();
  tile_add_bytes<i, 2 + i, 4 + i>();
}

template <int i>
OCTAVO_INLINE void take(Sums& sums) {
  tile_store<i>(sums.at, kAmxBytes);
}

// T rows by groups that have a scale each, and a min each if kMin.
template <bool kMin, int T>
struct Groups {
  using Terms = QuantizedRows::Terms;
  static constexpr size_t kBytes = 512 + 64 + (kMin ? 64 : 0);

  static OCTAVO_INLINE void add(const Sums& sums, const uint8_t* group, const uint8_t* terms_at,
                                __m512 (&c)[T]) {
    const auto* terms = reinterpret_cast<const Terms*>(terms_at);
    const __m512 scale = load_floats(group + 512);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
      c[t] = _mm512_fmadd_ps(sums.row(t), both, c[t]);
    }
    if constexpr (kMin) {
      const __m512 min = load_floats(group + 576);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        c[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(terms[t].sum), c[t]);
      }
    }
  }

  static OCTAVO_INLINE void begin(const uint8_t* q, const uint8_t* panel) { multiply<0>(q, panel); }

  // A panel that was begun, and the beginning of the next one if there is one. The float steps of a
  // group run beside the product of the second one after it.
  static OCTAVO_INLINE void run(const QuantTileArgs& a, const uint8_t* next, __m512 (&c)[T]) {
    Sums sums[2];
    const uint8_t *q = a.q, *terms = a.terms, *group = a.panel;
    const size_t stride = a.group_stride;
    const int64_t groups = a.groups;
    const uint8_t* ahead = a.ahead;
    int64_t g = 0;
    for (; g + 2 <= groups; g += 2) {
      multiply<1>(q + stride, group + kBytes);
      take<0>(sums[0]);
      ahead = ask_ahead(ahead, 2 * a.ahead_bytes);
      if (g > 0) add(sums[1], group - kBytes, terms - stride, c);
      if (g + 2 < groups) multiply<0>(q + 2 * stride, group + 2 * kBytes);
      take<1>(sums[1]);
      add(sums[0], group, terms, c);
      q += 2 * stride, terms += 2 * stride, group += 2 * kBytes;
    }
    if (g < groups) take<0>(sums[0]);
    if (next != nullptr) begin(a.q, next);
    if (g > 0) add(sums[1], group - kBytes, terms - stride, c);
    if (g < groups) add(sums[0], group, terms, c);
  }
};

// T rows by groups whose halves have whole-numbered scales (and mins if kMin), 8 groups a block
// that has another.
template <bool kMin, int T>
struct Halves {
  using Terms = QuantizedRows::Terms;
  static constexpr size_t kBytes = 512 + (kMin ? 256 : 128);
  static constexpr size_t kHead = kMin ? 128 : 64;
  static constexpr int kSuper = 8;

  // Integers in floats, below 2^24, are exact. s: the sums of a block; m: of its mins.
  static OCTAVO_INLINE void add(const Sums (&sums)[2], const uint8_t* group,
                                const uint8_t* terms_at, __m512 (&s)[T], __m512 (&m)[T]) {
    const auto* terms = reinterpret_cast<const Terms*>(terms_at);
    const __m512 first = load_floats(group + 512), second = load_floats(group + 576);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const __m512 x = _mm512_mul_ps(sums[0].converted(t), first);
      const __m512 both = _mm512_fmadd_ps(sums[1].converted(t), second, x);
      s[t] = _mm512_fmadd_ps(both, _mm512_set1_ps(terms[t].scale), s[t]);
    }
    if constexpr (kMin) {
      const __m512 first_min = load_floats(group + 640), second_min = load_floats(group + 704);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const int neg = terms[t].neg_sum_first;
        const __m512 x = _mm512_mul_ps(first_min, _mm512_set1_ps(static_cast<float>(neg)));
        const __m512 rest = _mm512_set1_ps(static_cast<float>(terms[t].neg_sum - neg));
        const __m512 both = _mm512_fmadd_ps(second_min, rest, x);
        m[t] = _mm512_fmadd_ps(both, _mm512_set1_ps(terms[t].scale), m[t]);
      }
    }
  }

  static OCTAVO_INLINE void begin(const uint8_t* q, const uint8_t* panel) {
    multiply<0>(q, panel + kHead);
  }

  static OCTAVO_INLINE void run(const QuantTileArgs& a, const uint8_t* next_panel, __m512 (&c)[T]) {
    Sums sums[2][2];
    const uint8_t *q = a.q, *terms = a.terms, *group = a.panel + kHead;
    const size_t stride = a.group_stride;
    const uint8_t* ahead = a.ahead;
    for (int64_t super = 0; super < a.groups; super += kSuper) {
      __m512 s[T];
      __m512 m[T];
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) s[t] = m[t] = _mm512_setzero_ps();
      const int64_t super_groups = a.groups - super < kSuper ? a.groups - super : kSuper;
#pragma GCC unroll 1
      for (int64_t g = 0; g < super_groups; ++g) {
        const bool last = g == super_groups - 1;
        const uint8_t* next = group + kBytes + (last ? kHead : 0);
        multiply<1>(q + kGroup / 2, group + 256);
        take<0>(sums[g % 2][0]);
        if (super + g + 1 < a.groups) {
          multiply<0>(q + stride, next);
        } else if (next_panel != nullptr) {
          begin(a.q, next_panel);
        }
        take<1>(sums[g % 2][1]);
        ahead = ask_ahead(ahead, a.ahead_bytes);
        if (g > 0) add(sums[1 - g % 2], group - kBytes, terms - stride, s, m);
        if (last) add(sums[g % 2], group, terms, s, m);
        q += stride, terms += stride, group = next;
      }
      const uint8_t* head = group - 2 * kHead - static_cast<size_t>(super_groups) * kBytes;
      const __m512 scale = load_floats(head);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(s[t], scale, c[t]);
      if constexpr (kMin) {
        const __m512 min_scale = load_floats(head + 64);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) c[t] = _mm512_fmadd_ps(m[t], min_scale, c[t]);
      }
    }
  }
};

template <int T>
using PlainGroups = Groups<false, T>;
template <int T>
using MinGroups = Groups<true, T>;
template <int T>
using PlainHalves = Halves<false, T>;
template <int T>
using MinHalves = Halves<true, T>;

ExpandedKernels expanded_kernels(SourceType source, int64_t rows) {
  const ExpandedKernels folded = folded_kernels_amx(source);
  if (folded.expand != nullptr && rows >= folded.from_rows) return folded;
  constexpr auto kRows = std::make_integer_sequence<int, kTileRows>{};
  ExpandedKernels kernels{};
  with_format(source, [&]<SourceType S>() {
    using F = Format<S>;
    if constexpr (kIsWide<S>) {
      kernels = wide_expanded_amx(source);
    } else {
      constexpr int64_t kFromRows = 13;
      kernels.expand = expand<S, true>;
      kernels.from_rows = kFromRows;
      kernels.most_rows = kTileRows;
      kernels.all_panels = true;
      kernels.groups = 32;
      kernels.many_rows = 64;
      kernels.close = close_tiles;
      if constexpr (F::kHalves) {
        kernels.tiles = F::kHalvesMin ? tiles<MinHalves>(kRows) : tiles<PlainHalves>(kRows);
        kernels.open = open_for<kGroup / 2>;
      } else {
        kernels.tiles = F::kMin ? tiles<MinGroups>(kRows) : tiles<PlainGroups>(kRows);
        kernels.open = open_for<kGroup>;
      }
    }
  });
  return kernels;
}

}  // namespace

const KernelTable& amx_kernels() {
  static const KernelTable table = [] {
    KernelTable t = avx512_kernels();
    t.isa = "amx";
    t.tile_rows = kTileRows;
    t.quant_stream = stream_kernel_avx512;
    t.stream_rows = kStreamRowsAvx512;
    t.expanded = expanded_kernels;
    t.int8_loop = int8_loop_amx;
    if (has_amx_bf16()) t.bf16_loop = bf16_loop_amx;
    return t;
  }();
  return table;
}

}  // namespace octavo

#endif
