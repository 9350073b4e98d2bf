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

#include "kernels/bf16_tiles.h"
#include "kernels/kernels_amx.h"
#include "kernels/kernels_avx512.h"

namespace octavo {
namespace {

using Expand = void (*)(const uint8_t* panel, size_t panel_bytes, int64_t begin, int64_t end,
                        uint8_t* out);

void finish_panel(const PanelMatrix& m, uint8_t* panel) {
  with_format(m.source, [&]<SourceType S>() { finish<S>(m, panel); });
}

// Few rows, R tiles: P panels at a time, as so many streams of memory, unpacked group by group. A
// group is multiplied while the next one is unpacked.
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
    each_of<R * P>([]<int i>() { zero_sums<i>(); });
    const uint8_t* rows = a.x.record(tile, 0);
    const size_t group_stride = a.x.group_stride(), tile_stride = a.x.tile_stride();
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
      multiply_group<R, P>(rows, tile_stride, lines[1 - g % 2][0], kUnpacked);
      rows += group_stride;
    }
    each_of<R * P>([&]<int i>() {
      alignas(64) float sums[kSums];
      store_sums<i>(sums);
      write_rows(a, tile + i / P, panel + i % P, sums);
    });
  }

  static void all(const ProductArgs& a, int64_t tile, int64_t tiles) {
    for (int64_t p = a.panel_begin; p < a.panel_end;) {
      const int64_t left = a.panel_end - p;
      if (tiles == 1) {
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

// Many rows: kBlockGroups groups of kBlockPanels panels are unpacked at a time, into the first
// level of cache, and multiplied by up to kBlockTiles tiles of rows. Sums go through memory between
// one block of columns and the next.
constexpr int64_t kBlockGroups = 8;
constexpr int64_t kBlockPanels = 8;
constexpr int64_t kBlockTiles = 32;

struct BlockMemory {
  alignas(64) uint8_t lines[kBlockPanels][kBlockGroups][kUnpacked];
  alignas(64) float sums[kBlockTiles][kBlockPanels][kSums];
};

// R tiles of rows from `tile` on by P panels from place `p` on.
template <int R, int P>
OCTAVO_INLINE void multiply_block(const QuantizedRows& x, BlockMemory& memory, int64_t tile,
                                  int64_t place, int64_t p, int64_t begin, int64_t end) {
  const auto sums = [&]<int i>() { return memory.sums[place + i / P][p + i % P]; };
  if (begin == 0) {
    each_of<R * P>([]<int i>() { zero_sums<i>(); });
  } else {
    each_of<R * P>([&]<int i>() { load_sums<i>(sums.template operator()<i>()); });
  }
  const uint8_t* rows = x.record(tile, begin);
  const size_t group_stride = x.group_stride(), tile_stride = x.tile_stride();
  for (int64_t g = 0; g < end - begin; ++g, rows += group_stride) {
    multiply_group<R, P>(rows, tile_stride, memory.lines[p][g], sizeof(memory.lines[0]));
  }
  each_of<R * P>([&]<int i>() { store_sums<i>(sums.template operator()<i>()); });
}

OCTAVO_INLINE void ask_for(const uint8_t* at, size_t bytes) {
  for (size_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
  }
}

void multiply_blocks(const ProductArgs& a, BlockMemory& memory, Expand expand, int64_t tile,
                     int64_t tiles, int64_t panel, int64_t panels) {
  const auto at = [&](int64_t p) {
    return a.matrix.data + static_cast<size_t>(panel + p) * a.matrix.panel_bytes;
  };
  const size_t panel_bytes = a.matrix.panel_bytes;
  const auto groups = static_cast<size_t>(a.x.groups);
  for (int64_t begin = 0; begin < a.x.groups; begin += kBlockGroups) {
    const int64_t end = std::min(begin + kBlockGroups, a.x.groups);
    for (int64_t p = 0; p < panels; ++p) {
      expand(at(p), a.matrix.panel_bytes, begin, end, memory.lines[p][0]);
    }
    // What is unpacked next: of these panels, or of those after them.
    const size_t piece = panel_bytes * static_cast<size_t>(kBlockGroups) / groups;
    const bool more = end < a.x.groups;
    for (int64_t t = 0; t < tiles; t += 2) {
      for (int64_t p = 0; p < panels; ++p) {
        const uint8_t* from =
            more ? at(p) + panel_bytes * static_cast<size_t>(end) / groups : at(p + panels);
        ask_for(from + piece * t / tiles, piece * 2 / tiles + 64);
      }
      for (int64_t p = 0; p < panels; p += 2) {
        if (t + 1 < tiles && p + 1 < panels) {
          multiply_block<2, 2>(a.x, memory, tile + t, t, p, begin, end);
        } else if (t + 1 < tiles) {
          multiply_block<2, 1>(a.x, memory, tile + t, t, p, begin, end);
        } else if (p + 1 < panels) {
          multiply_block<1, 2>(a.x, memory, tile + t, t, p, begin, end);
        } else {
          multiply_block<1, 1>(a.x, memory, tile + t, t, p, begin, end);
        }
      }
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t p = 0; p < panels; ++p) {
      write_rows(a, tile + t, panel + p, memory.sums[t][p]);
    }
  }
}

template <SourceType S>
void product_of(const ProductArgs& a) {
  const int64_t first = a.row_begin / a.x.tile;
  const int64_t tiles = (a.row_end - 1) / a.x.tile + 1 - first;
  open_products(a.x.tile);
  if (tiles <= 2) {
    Streams<S>::all(a, first, tiles);
  } else {
    static thread_local BlockMemory memory;
    for (int64_t t = 0; t < tiles; t += kBlockTiles) {
      const int64_t some = std::min(kBlockTiles, tiles - t);
      for (int64_t p = a.panel_begin; p < a.panel_end; p += kBlockPanels) {
        multiply_blocks(a, memory, expand_groups<S>, first + t, some, p,
                        std::min(kBlockPanels, a.panel_end - p));
      }
    }
  }
  close_tiles();
}

void product(const ProductArgs& a) {
  if (a.row_begin >= a.row_end || a.panel_begin >= a.panel_end) return;
  with_format(a.matrix.source, [&]<SourceType S>() { product_of<S>(a); });
}

void round_group(const float* x, uint8_t* out) {
  // Infinities become NaN, as the other sets have them.
  const auto scaled = [](__m512 part) {
    const __m512 unknown = _mm512_mul_ps(part, _mm512_setzero_ps());
    return _mm512_fmadd_ps(part, _mm512_set1_ps(kBf16Unit), unknown);
  };
  const __m512 first = scaled(_mm512_loadu_ps(x));
  const __m512 second = scaled(_mm512_loadu_ps(x + 16));
  const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  // Of every four the middle two swapped: bf16_column.
  const __m512i swap =
      _mm512_broadcast_i32x4(_mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
  _mm512_storeu_si512(out, _mm512_shuffle_epi8(rounded, swap));
}

}  // namespace

const KernelTable& amxbf16_kernels() {
  static const KernelTable table = [] {
    KernelTable t = avx512_kernels();
    t.isa = "amxbf16";
    t.tile_rows = kAmxRows;
    t.product = product;
    t.round_group = round_group;
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
