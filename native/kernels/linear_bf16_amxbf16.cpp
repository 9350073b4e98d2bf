// Quantized products with bf16 tiles, of any number of rows.
//
// Weights stay in the panels' formats. A group of a panel is unpacked to a tile of 16 pairs of
// columns by 16 weight rows, scaled, and multiplied by up to 16 rows of activations a tile product;
// sums stay in tiles over all of K, so that nothing has to be done for a group but the product
// itself. An element is one float16 multiply-add, scale * q + min, rounded to bf16: its float16
// bits moved right by three are the bits of a bf16 2^112 times smaller. Scales are those of the
// file times a power of two for each weight row, kept behind a panel's groups, which puts the row's
// largest element just below the largest float16; a result is divided by both powers.
//
// The order of float operations per output element: for each group in K order, the products of
// columns 4j (+1) over j in order, those of columns 4j+2 (+3) likewise, their sum to the sum so far
// (tdpbf16ps). It is the same for any number of rows.
#include "kernels/kernel_table.h"

#if defined(__AMX_BF16__) && defined(__AVX512FP16__)
#include <algorithm>

#include "kernels/bf16_blocks.h"
#include "kernels/kernels_amx.h"
#include "kernels/kernels_avx512.h"

namespace octavo {
namespace {

void finish_panel(const PanelMatrix& m, uint8_t* panel) {
  with_format(m.source, [&]<SourceType S>() { finish<S>(m, panel); });
}

// One tile of rows, in R halves: P panels at a time, as so many streams of memory, unpacked group
// by group. A group is multiplied while the next one is unpacked.
template <SourceType S>
struct Streams {
  static constexpr size_t kAhead = 2560;

  // Asks memory for what lies kAhead behind `at` in a panel, or in the one that comes after it.
  static OCTAVO_INLINE void ask(const uint8_t* panel, size_t panel_bytes, size_t at,
                                const uint8_t* next) {
    constexpr size_t kBytes = kGroupBytes<S> + (Format<S>::kHead + 7) / 8;
    const size_t from = at + kAhead;
    const uint8_t* ahead = from < panel_bytes ? panel + from : next + (from - panel_bytes);
    for (size_t b = 0; b < kBytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + b), _MM_HINT_T0);
    }
  }

  template <int R, int P>
  static void run(const ProductArgs& a, int64_t tile, int64_t panel) {
    const size_t panel_bytes = a.matrix.panel_bytes;
    const uint8_t* first = a.matrix.data + static_cast<size_t>(panel) * panel_bytes;
    const bool ends = panel + P >= a.panel_end && a.next.data != nullptr;
    const uint8_t* next = ends ? a.next.data : first + P * panel_bytes;
    const size_t next_bytes = ends ? a.next.panel_bytes : panel_bytes;
    alignas(64) uint8_t lines[2][P][kUnpacked];
    Walk<S> walks[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) walks[p].begin(first + p * panel_bytes, panel_bytes, 0);
    zero_all_sums<R, P>();
    const uint8_t* rows = a.x.record(tile, 0);
    const size_t group_stride = a.x.group_stride();
    for (int64_t g = 0; g <= a.x.groups; ++g) {
      if (g < a.x.groups) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const uint8_t* from = first + p * panel_bytes;
          const auto at = static_cast<size_t>(walks[p].group - from);
          ask(from, panel_bytes, at, next + p * next_bytes);
          walks[p].next(lines[g % 2][p]);
        }
      }
      if (g == 0) continue;
      multiply_group<R, P>(rows, half_bytes(a.x), lines[1 - g % 2][0], kUnpacked);
      rows += group_stride;
    }
    alignas(64) float sums[R * P][kSums];
    store_all_sums<R, P>(sums);
    for (int i = 0; i < R * P; ++i) write_rows(a, tile, i / P, panel + i % P, sums[i]);
  }

  static void all(const ProductArgs& a, int64_t tile) {
    for (int64_t p = a.panel_begin; p < a.panel_end;) {
      const int64_t left = a.panel_end - p;
      if (a.x.tile <= kAmxRows) {
        if (left >= 4) {
          run<1, 4>(a, tile, p), p += 4;
        } else if (left >= 2) {
          run<1, 2>(a, tile, p), p += 2;
        } else {
          run<1, 1>(a, tile, p), p += 1;
        }
      } else if (left >= 2) {
        run<2, 2>(a, tile, p), p += 2;
      } else {
        run<2, 1>(a, tile, p), p += 1;
      }
    }
  }
};

void product(const ProductArgs& a) {
  if (a.row_begin >= a.row_end || a.panel_begin >= a.panel_end) return;
  const int64_t first = a.row_begin / a.x.tile;
  const int64_t tiles = (a.row_end - 1) / a.x.tile + 1 - first;
  open_products(a.x.tile);
  if (tiles == 1) {
    with_format(a.matrix.source, [&]<SourceType S>() { Streams<S>::all(a, first); });
  } else {
    multiply_blocks(OneMatrix(a), first, tiles, a.panel_begin, a.panel_end);
  }
  close_tiles();
}

void product_pair(const PairArgs& a) {
  open_products(a.x.tile);
  const int64_t first = a.row_begin / a.x.tile;
  const int64_t tiles = (a.row_end - 1) / a.x.tile + 1 - first;
  multiply_blocks(TwoMatrices(a), first, tiles, a.panel_begin, a.panel_end);
  close_tiles();
}

// 16 columns to bf16, of every four the middle two swapped (bf16_column). Infinities become NaN, as
// the other sets have them.
OCTAVO_INLINE void round_half(const float* x, uint8_t* out) {
  const __m512 part = _mm512_loadu_ps(x);
  const __m512 unknown = _mm512_mul_ps(part, _mm512_setzero_ps());
  const __m512 scaled = _mm512_fmadd_ps(part, _mm512_set1_ps(kBf16Unit), unknown);
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(scaled));
  const __m256i swap = _mm256_broadcastsi128_si256(
      _mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(rounded, swap));
}

void round_run(const float* x, int64_t groups, uint8_t* out, size_t stride) {
  for (int64_t g = 0; g < groups; ++g, x += kGroup, out += stride) {
    round_half(x, out);
    round_half(x + kGroup / 2, out + kGroup);
  }
}

void round_block(const float* x, int64_t rows, uint8_t* out) {
  for (int64_t r = 0; r < rows; ++r) round_half(x + r * kPanelRows, out + r * 2 * kGroup);
}

}  // namespace

const KernelTable& amxbf16_kernels() {
  static const KernelTable table = [] {
    KernelTable t = avx512_kernels();
    t.isa = "amxbf16";
    t.tile_rows = 2 * kAmxRows;
    t.product = product;
    t.product_pair = product_pair;
    t.round_run = round_run;
    t.round_block = round_block;
    t.trailer_bytes = kTrailer;
    t.finish_panel = finish_panel;
    t.int8_loop = int8_loop_amx;
    t.bf16_loop = bf16_loop_amx;
    return t;
  }();
  return table;
}

bool has_amxbf16_kernels() {
  return true;
}

}  // namespace octavo

#else

namespace octavo {

const KernelTable& amxbf16_kernels() {
  return scalar_kernels();
}

bool has_amxbf16_kernels() {
  return false;
}

}  // namespace octavo

#endif
