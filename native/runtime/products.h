// What the instructions that multiply matrices share: how rows and panels are cut into items, and
// what is added to results.
//
// The output columns of a product are cut into chunks of panels. With few rows each thread takes
// one adjacent run of panels, so that it reads one stream of memory; with many, chunks are handed
// out one by one, so that a slow core does not hold up the other; with very many, rows are cut
// first (RowShares), so that a core reads what it wrote itself. Either way an output element is
// computed by one thread in one order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/adapters.h"
#include "runtime/instructions.h"
#include "runtime/panel_items.h"

namespace octavo {

constexpr int64_t kStreamRows = 4;  // up to here the time is that of reading the weights
// Panels of a chunk, whose results stay in L2 for the epilogue. Best are as many as are unpacked at
// once.
constexpr int64_t kChunkPanels[] = {4, 3};
constexpr int64_t kManyRows = 64;
// Rows of a thread, at least, where rows are shared out.
constexpr int64_t kShareRows = 64, kBf16ShareRows = 128;
constexpr size_t kStreamBytes = 64 << 10;  // of weights in one item, when reading them is the cost

inline bool in_many_bf16_rows(const RunContext& ctx, int64_t rows) {
  return rows > kManyRows && ctx.products == Products::kBf16;
}

// Rows of the matrix that panels [begin, end) hold.
inline int64_t columns(const PanelMatrix& w, int64_t begin, int64_t end) {
  return std::min(end * kPanelRows, w.n) - begin * kPanelRows;
}

// Most panels whose [rows x columns] results, `copies` times, fit a thread's tile.
inline int64_t panels_in_tile(int64_t rows, int64_t copies) {
  const int64_t fit = kTileFloats / (copies * rows * kPanelRows) / 2 * 2;
  return std::max<int64_t>(2, fit);
}

inline void product(const Buffer& in, const PanelMatrix& w, int64_t row_begin, int64_t row_end,
                    int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo,
                    const PanelStream& next, const AddedRows& residual = {}) {
  if (in.f32 != nullptr) {
    linear_f32(w, in.f32, in.width, row_begin, row_end, panel_begin, panel_end, out, ldo);
  } else {
    linear_q8(w, in.q8, row_begin, row_end, panel_begin, panel_end, out, ldo, next, residual);
  }
}

inline PanelStream stream(const PanelMatrix& w, int64_t panel) {
  return {w.data + static_cast<size_t>(panel) * w.panel_bytes, w.panel_bytes};
}

inline void add_bias(const std::vector<float>& bias, int64_t column, int64_t n, float* rows,
                     int64_t ld, int64_t num_rows) {
  if (bias.empty()) return;
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < n; ++c) rows[r * ld + c] += bias[column + c];
  }
}

inline bool has_adapters(const RunContext& ctx, Rows rows) {
  return ctx.adapters != nullptr && !ctx.adapters->runs(rows).empty();
}

// What adapters add to panels [begin, end); out: row 0, the first column of panel begin.
inline void add_adapters(const RunContext& ctx, Rows rows, size_t place, int matrix, int64_t begin,
                         int64_t end, float* out, int64_t ld) {
  if (!has_adapters(ctx, rows)) return;
  ctx.adapters->add(rows, static_cast<int64_t>(place), matrix, begin, end, out, ld);
}

// How rows are shared out before panels are: one run of rows a thread, where there are so many that
// unpacking all panels for each run costs little. What a thread reads is then for the most part
// what it wrote itself.
class RowShares {
 public:
  RowShares() = default;
  // wanted: false for one share of all rows.
  RowShares(const RunContext& ctx, Rows rows, const Buffer& in, bool wanted)
      : rows_(ctx.rows(rows)), many_bf16_(in.f32 == nullptr && in_many_bf16_rows(ctx, rows_)) {
    if (!wanted || in.f32 != nullptr) return;
    const int64_t tile = in.q8.tile;
    const int64_t tiles = (rows_ + tile - 1) / tile, threads = ctx.pool->size();
    const int64_t least = many_bf16_ ? kBf16ShareRows : kShareRows;
    if (rows_ >= least * threads) tile_ = tile, tiles_ = tiles, count_ = threads;
  }
  bool operator==(const RowShares&) const = default;

  int64_t rows() const { return rows_; }
  bool many_bf16() const { return many_bf16_; }
  int64_t count() const { return count_; }
  // The first row of a share; of the one past the last, the number of rows.
  int64_t begin(int64_t share) const {
    return share == count_ ? rows_ : tiles_ * share / count_ * tile_;
  }
  // How many threads share the panels of a share.
  int panel_threads(const RunContext& ctx) const { return count_ > 1 ? 1 : ctx.pool->size(); }

 private:
  int64_t rows_ = 0;
  bool many_bf16_ = false;
  int64_t tile_ = 0;
  int64_t tiles_ = 0;
  int64_t count_ = 1;
};

}  // namespace octavo
