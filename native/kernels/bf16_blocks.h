// Products of many rows with bf16 tiles. For linear_bf16_amxbf16.cpp.
//
// A block is some groups of two panels, unpacked into the first level of cache, where it stays
// while tiles of rows pass by from the second level. Its sums go through memory between one block
// of columns and the next. Several pairs of panels take turns, so that the rows' columns are read
// from further away once for all of them. A pair is two panels of one matrix, or one of each of
// two.
#pragma once

#include "kernels/bf16_tiles.h"

namespace octavo {
namespace {

using Expand = void (*)(const uint8_t* panel, size_t panel_bytes, int64_t begin, int64_t end,
                        uint8_t* out);

constexpr int64_t kBlockGroups = 20;  // at most: 40 of the first level's 48 kB
constexpr int64_t kSuperGroups = 16;  // a multiple of the groups under any head
constexpr int64_t kBlockPairs = 9;
constexpr int64_t kBlockTiles = 16;

struct BlockMemory {
  alignas(64) uint8_t lines[2][kBlockGroups][kUnpacked];
  alignas(64) float sums[kBlockPairs][kBlockTiles][4][kSums];
  alignas(64) float results[4][kSums];
};

// The panels of a matrix, and how they are unpacked.
class BlockSource {
 public:
  explicit BlockSource(const PanelMatrix& matrix) : matrix_(&matrix) {
    with_format(matrix.source, [&]<SourceType S>() {
      expand_ = expand_groups<S>;
      in_supers_ = Format<S>::kSuper > 1;
      static_assert(kSuperGroups % Format<S>::kSuper == 0);
    });
  }

  bool in_supers() const { return in_supers_; }
  const PanelMatrix& matrix() const { return *matrix_; }

  void expand(int64_t panel, int64_t begin, int64_t end, uint8_t* out) const {
    expand_(at(panel), matrix_->panel_bytes, begin, end, out);
  }
  // Asks for part `part` of `parts` of groups [begin, begin + groups) of a panel, into the second
  // level: the first has its hands full. With the first part, for the powers behind the panel too.
  // Always inline: to GCC, what only asks for memory need not be called.
  OCTAVO_INLINE void ask_for(int64_t panel, int64_t begin, int64_t groups, int64_t part,
                             int64_t parts) const {
    const uint8_t* from = at(panel) + bytes(begin);
    const int64_t lines = static_cast<int64_t>(bytes(groups) / 64) + 1;
    if (part == 0) _mm_prefetch(reinterpret_cast<const char*>(at(panel + 1)) - 64, _MM_HINT_T1);
    for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i * 64), _MM_HINT_T1);
    }
  }

 private:
  const uint8_t* at(int64_t panel) const {
    return matrix_->data + static_cast<size_t>(panel) * matrix_->panel_bytes;
  }
  size_t bytes(int64_t groups) const {
    return matrix_->panel_bytes * groups / (matrix_->k / kGroup);
  }

  const PanelMatrix* matrix_;
  Expand expand_ = nullptr;
  bool in_supers_ = false;
};

// Groups of a block, such that blocks come out even: 24 are 12 + 12. Where groups of a
// format come by the eight, blocks are two of those.
inline int64_t block_groups(int64_t groups, bool in_supers) {
  if (in_supers) return kSuperGroups;
  const int64_t blocks = (groups + kBlockGroups - 1) / kBlockGroups;
  return (groups + blocks - 1) / blocks;
}

// Two panels at a time of one matrix; results go to a.out.
class OneMatrix {
 public:
  explicit OneMatrix(const ProductArgs& a) : a_(a), source_(a.matrix) {}

  const QuantizedRows& x() const { return a_.x; }
  bool in_supers() const { return source_.in_supers(); }
  // Panel i of a pair that begins at place `at`.
  const BlockSource& source(int) const { return source_; }
  static int64_t panel(int64_t at, int i) { return at + i; }
  static constexpr int64_t kStep = 2;  // from one pair to the next

  template <int P>
  void finish(int64_t tile, int64_t at, float (*results)[kSums]) const {
    for (int i = 0; i < 2 * P; ++i) write_rows(a_, tile, i / P, at + i % P, results[i]);
  }

 private:
  const ProductArgs& a_;
  BlockSource source_;
};

// A panel of each of two matrices; results are handed on.
class TwoMatrices {
 public:
  explicit TwoMatrices(const PairArgs& a)
      : a_(a), sources_{BlockSource(a.first), BlockSource(a.second)} {}

  const QuantizedRows& x() const { return a_.x; }
  bool in_supers() const { return sources_[0].in_supers() || sources_[1].in_supers(); }
  const BlockSource& source(int i) const { return sources_[i]; }
  static int64_t panel(int64_t at, int) { return at; }
  static constexpr int64_t kStep = 1;

  template <int P>
  void finish(int64_t tile, int64_t at, float (*results)[kSums]) const {
    const __m512 units[2] = {unit(0, at), unit(1, at)};
    for (int half = 0; half < 2; ++half) {
      const RowRange rows = rows_of(a_.x, tile, half);
      const int64_t begin = std::max(rows.begin, a_.row_begin),
                    end = std::min(rows.end, a_.row_end);
      if (begin >= end) continue;
      float* wanted[2];
      for (int i = 0; i < 2; ++i) {
        wanted[i] = results[half * 2 + i] + (begin - rows.begin) * kPanelRows;
        for (int64_t r = 0; r < end - begin; ++r) {
          float* sums = wanted[i] + r * kPanelRows;
          _mm512_store_ps(sums, result(_mm512_load_ps(sums), units[i]));
        }
      }
      a_.take(a_.context, begin, end - begin, at, wanted[0], wanted[1]);
    }
  }

 private:
  __m512 unit(int i, int64_t panel) const {
    const PanelMatrix& m = sources_[i].matrix();
    return unit_of(m.data + static_cast<size_t>(panel) * m.panel_bytes, m.panel_bytes);
  }

  const PairArgs& a_;
  BlockSource sources_[2];
};

// Up to kBlockTiles tiles of rows from `tile` on, by pairs from panel `begin` on, up to
// kBlockPairs.
template <class Matrices>
class Blocks {
 public:
  Blocks(const Matrices& matrices, BlockMemory& memory, int64_t tile, int64_t tiles, int64_t begin,
         int64_t end)
      : matrices_(matrices),
        memory_(memory),
        groups_(block_groups(matrices.x().groups, matrices.in_supers())),
        tile_(tile),
        tiles_(tiles),
        begin_(begin),
        end_(end) {}

  void multiply() {
    const int64_t all = matrices_.x().groups;
    for (from_ = 0; from_ < all; from_ = to_) {
      to_ = std::min(from_ + groups_, all);
      for (int64_t at = begin_; at < end_; at += Matrices::kStep) {
        if (at + Matrices::kStep <= end_) {
          pair<2>(at);
        } else {
          pair<1>(at);
        }
      }
    }
  }

 private:
  // P panels by all tiles.
  template <int P>
  void pair(int64_t at) {
    for (int i = 0; i < P; ++i) {
      matrices_.source(i).expand(Matrices::panel(at, i), from_, to_, memory_.lines[i][0]);
    }
    // What is unpacked next: of the panels that come, of the first ones again, or behind them all.
    const bool more = at + Matrices::kStep < end_, last = to_ == matrices_.x().groups;
    const int64_t next = more || last ? at + Matrices::kStep : begin_;
    const int64_t from = more ? from_ : last ? 0 : to_;
    for (int64_t t = 0; t < tiles_; ++t) {
      for (int i = 0; i < P; ++i) {
        matrices_.source(i).ask_for(Matrices::panel(next, i), from, groups_, t, tiles_);
      }
      tile<P>(at, t);
    }
  }

  // The tile at place t, which is of both halves: fewer rows would be one tile, a stream.
  template <int P>
  OCTAVO_INLINE void tile(int64_t at, int64_t t) {
    const QuantizedRows& x = matrices_.x();
    auto& sums = memory_.sums[(at - begin_) / Matrices::kStep][t];
    if (from_ == 0) {
      zero_all_sums<2, P>();
    } else {
      load_all_sums<2, P>(sums);
    }
    const uint8_t* rows = x.record(tile_ + t, from_);
    const size_t group_stride = x.group_stride(), half = half_bytes(x);
    const int64_t groups = to_ - from_;
    for (int64_t g = 0; g < groups; ++g, rows += group_stride) {
      multiply_group<2, P, true>(rows, half, memory_.lines[0][g], sizeof(memory_.lines[0]));
    }
    if (to_ < x.groups) {
      store_all_sums<2, P>(sums);
    } else {
      store_all_sums<2, P>(memory_.results);
      matrices_.template finish<P>(tile_ + t, at, memory_.results);
    }
  }

  const Matrices& matrices_;
  BlockMemory& memory_;
  int64_t groups_;  // of a block
  int64_t tile_;
  int64_t tiles_;
  int64_t begin_;  // panels
  int64_t end_;
  int64_t from_ = 0;  // the block's groups
  int64_t to_ = 0;
};

// Tiles [tile, tile + tiles) by panels [begin, end).
template <class Matrices>
void multiply_blocks(const Matrices& matrices, int64_t tile, int64_t tiles, int64_t begin,
                     int64_t end) {
  static thread_local BlockMemory memory;
  constexpr int64_t kPanels = kBlockPairs * Matrices::kStep;
  for (int64_t t = 0; t < tiles; t += kBlockTiles) {
    const int64_t some = std::min(kBlockTiles, tiles - t);
    for (int64_t p = begin; p < end; p += kPanels) {
      Blocks<Matrices>(matrices, memory, tile + t, some, p, std::min(p + kPanels, end)).multiply();
    }
  }
}

}  // namespace
}  // namespace octavo
