// Matrix products with their epilogues: bias, residual, gated activation, quantization.
//
// The output columns of a product are cut into chunks of panels. With few rows each thread takes
// one adjacent run of panels, so that it reads one stream of memory; with many, chunks are handed
// out one by one, so that a slow core does not hold up the other. Either way an output element is
// computed by one thread in one order.

#include <algorithm>
#include <span>

#include "runtime/adapters.h"
#include "runtime/instructions.h"
#include "runtime/panel_items.h"

namespace octavo {
namespace {

constexpr int64_t kStreamRows = 4;  // up to here the time is that of reading the weights
// Panels of a chunk, whose results stay in L2 for the epilogue. Best are as many as are unpacked at
// once.
constexpr int64_t kChunkPanels[] = {4, 3};
// In bf16, of which activations take twice the memory, and more than the second-level cache has
// from some thousand columns on: they are read half as often.
constexpr int64_t kBf16ChunkPanels[] = {8, 6};
constexpr int64_t kManyRows = 64;
constexpr size_t kStreamBytes = 64 << 10;  // of weights in one item, when reading them is the cost
// Where an item reads two matrices, each begins with a wait for memory: as much of each at a time,
// unless there would be fewer items than these.
constexpr size_t kMostStreamBytes = 256 << 10;
constexpr size_t kStreamItems = 32;

// The chunks to choose from for so many rows, the best one first.
inline std::span<const int64_t> chunk_panels(int64_t rows) {
  if (rows > kManyRows && multiplies_bf16()) return kBf16ChunkPanels;
  return kChunkPanels;
}

// The chunk of a region that leaves its threads the least to wait for at its end.
// num_chunks(panels): how many such chunks the region has.
template <class NumChunks>
int64_t even_chunk(int64_t threads, int64_t rows, NumChunks&& num_chunks) {
  int64_t best = 0, least = 0;
  for (const int64_t step : chunk_panels(rows)) {
    const int64_t chunks = num_chunks(step);
    const int64_t longest = (chunks + threads - 1) / threads * step;
    if (best == 0 || longest < least) best = step, least = longest;
  }
  return best;
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
                    const PanelStream& next) {
  if (in.f32 != nullptr) {
    linear_f32(w, in.f32, in.width, row_begin, row_end, panel_begin, panel_end, out, ldo);
  } else {
    linear_q8(w, in.q8, row_begin, row_end, panel_begin, panel_end, out, ldo, next);
  }
}

inline PanelStream stream(const PanelMatrix& w, int64_t panel) {
  return {w.data + static_cast<size_t>(panel) * w.panel_bytes, w.panel_bytes};
}

void add_bias(const std::vector<float>& bias, int64_t column, int64_t n, float* rows, int64_t ld,
              int64_t num_rows) {
  if (bias.empty()) return;
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < n; ++c) rows[r * ld + c] += bias[column + c];
  }
}

// What adapters add to panels [begin, end); out: row 0, the first column of panel begin.
inline void add_adapters(const RunContext& ctx, Rows rows, size_t place, int matrix, int64_t begin,
                         int64_t end, float* out, int64_t ld) {
  if (ctx.adapters == nullptr || ctx.adapters->runs(rows).empty()) return;
  ctx.adapters->add(rows, static_cast<int64_t>(place), matrix, begin, end, out, ld);
}

class Linear : public Instruction {
 public:
  explicit Linear(LinearSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "linear"; }

  int64_t prepare(RunContext& ctx) override {
    if (rows_ == ctx.rows(s_.rows)) return num_items_;  // matrices stay
    rows_ = ctx.rows(s_.rows);
    num_items_ = rows_ == 0 ? 0 : rows_ <= kStreamRows ? cut_streams(ctx) : cut_chunks(ctx);
    return num_items_;
  }

  PanelStream weights(const RunContext& ctx, int tid) const override {
    if (rows_ == 0 || rows_ > kStreamRows) return {};
    return piece_stream(ctx, first_piece_[num_items_ * tid / ctx.pool->size()]);
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    for (int64_t p = first_piece_[item]; p < first_piece_[item + 1]; ++p) {
      const Piece& i = pieces_[p];
      const bool more =
          p + 1 < first_piece_[item + 1] || follows(item, num_items_, ctx.pool->size());
      const PanelStream next = more ? piece_stream(ctx, p + 1) : scratch.next;
      part(ctx, scratch, i.part, matrix(ctx, i.part), rows_, i.begin, i.end, next);
    }
  }

 private:
  // Panels of one part; an item has one or several.
  struct Piece {
    size_t part;
    int64_t begin;
    int64_t end;
  };

  const PanelMatrix& matrix(const RunContext& ctx, size_t part) const {
    return (*ctx.matrices)[s_.parts[part].matrix];
  }
  // Where a piece begins; nowhere past the last one, since the last items may be empty.
  PanelStream piece_stream(const RunContext& ctx, int64_t piece) const {
    if (piece >= static_cast<int64_t>(pieces_.size())) return {};
    const Piece& p = pieces_[piece];
    return stream(matrix(ctx, p.part), p.begin);
  }

  // Each thread reads one run of panels, of all parts.
  int64_t cut_streams(const RunContext& ctx) {
    std::vector<PanelItems::Part> parts;
    for (size_t p = 0; p < s_.parts.size(); ++p) {
      const PanelMatrix& w = matrix(ctx, p);
      parts.push_back({w.num_panels, w.panel_bytes});
    }
    PanelItems cuts;
    const int64_t items = cuts.cut(parts, ctx.pool->size(), kStreamBytes);
    pieces_.clear();
    first_piece_.assign(1, 0);
    for (int64_t i = 0; i < items; ++i) {
      int64_t first = 0;  // panel of part p, of all
      for (size_t p = 0; p < parts.size(); first += parts[p++].panels) {
        const int64_t begin = std::max<int64_t>(0, cuts.begin(i) - first);
        const int64_t end = std::min(parts[p].panels, cuts.end(i) - first);
        if (begin < end) pieces_.push_back({p, begin, end});
      }
      first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
    }
    return items;
  }

  int64_t cut_chunks(const RunContext& ctx) {
    pieces_.clear();
    first_piece_.clear();
    const int64_t step = even_chunk(ctx.pool->size(), rows_, [&](int64_t panels) {
      int64_t chunks = 0;
      for (size_t p = 0; p < s_.parts.size(); ++p) {
        chunks += (matrix(ctx, p).num_panels + panels - 1) / panels;
      }
      return chunks;
    });
    for (size_t p = 0; p < s_.parts.size(); ++p) {
      const int64_t panels = matrix(ctx, p).num_panels;
      for (int64_t b = 0; b < panels; b += step) {
        first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
        pieces_.push_back({p, b, std::min(b + step, panels)});
      }
    }
    first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
    return static_cast<int64_t>(pieces_.size());
  }

  void part(RunContext& ctx, ThreadScratch& scratch, size_t place, const PanelMatrix& w,
            int64_t rows, int64_t begin, int64_t end, const PanelStream& next) {
    const LinearPart& p = s_.parts[place];
    const Buffer& in = ctx.buffer(s_.in);
    const bool to_logits = p.out < 0;
    float* out = to_logits ? ctx.logits : ctx.buffer(p.out).f32;
    const int64_t ldo = to_logits ? w.n : ctx.buffer(p.out).width;
    if (p.residual < 0) {
      // linear writes at row * ldo + weight row.
      product(in, w, 0, rows, begin, end, out + p.column, ldo, next);
      const int64_t c = begin * kPanelRows;
      add_bias(p.bias, c, columns(w, begin, end), out + p.column + c, ldo, rows);
      add_adapters(ctx, s_.rows, place, p.matrix, begin, end, out + p.column + c, ldo);
      return;
    }
    const Buffer& res = ctx.buffer(p.residual);
    const int64_t step = panels_in_tile(rows, 1);
    for (int64_t b = begin; b < end; b += step) {
      const int64_t e = std::min(b + step, end), n = columns(w, b, e), c = b * kPanelRows;
      const int64_t ld = (e - b) * kPanelRows;
      product(in, w, 0, rows, b, e, scratch.tile - c, ld, e < end ? stream(w, e) : next);
      add_bias(p.bias, c, n, scratch.tile, ld, rows);
      add_adapters(ctx, s_.rows, place, p.matrix, b, e, scratch.tile, ld);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = p.column + c;
        ctx.kernels->add(res.f32 + r * res.width + at, scratch.tile + r * ld, out + r * ldo + at,
                         n);
      }
    }
  }

  LinearSpec s_;
  int64_t rows_ = 0;
  int64_t num_items_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_piece_;  // of each item, and one past the last
};

class Gated : public Instruction {
 public:
  explicit Gated(GatedSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "gated"; }

  int64_t prepare(RunContext& ctx) override {
    if (rows_ == ctx.rows(s_.rows)) return num_items_;  // matrices stay
    rows_ = ctx.rows(s_.rows);
    const PanelMatrix &gate = matrix(ctx, s_.gate), &up = matrix(ctx, s_.up);
    if (rows_ == 0) {
      num_items_ = 0;
    } else if (rows_ <= kStreamRows) {
      const std::vector<PanelItems::Part> parts{
          {gate.num_panels, gate.panel_bytes + up.panel_bytes}};
      const size_t most = std::max(gate.size_bytes(), up.size_bytes()) / kStreamItems;
      const size_t bytes = std::clamp(most, kStreamBytes, kMostStreamBytes);
      num_items_ = streams_.cut(parts, ctx.pool->size(), 2 * bytes);
    } else {
      // An even number, since groups of 32 columns are quantized here.
      step_ = std::min(panels_in_tile(rows_, 2), chunk_panels(rows_)[0]);
      num_items_ = (gate.num_panels + step_ - 1) / step_;
    }
    return num_items_;
  }

  PanelStream weights(const RunContext& ctx, int tid) const override {
    if (rows_ == 0 || rows_ > kStreamRows) return {};
    return stream(matrix(ctx, s_.gate), begin(num_items_ * tid / ctx.pool->size()));
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const PanelMatrix& gate = matrix(ctx, s_.gate);
    const bool more = follows(item, num_items_, ctx.pool->size());
    const PanelStream next = more ? stream(gate, begin(item + 1)) : scratch.next;
    const int64_t step = panels_in_tile(rows_, 2);
    for (int64_t b = begin(item), end = this->end(ctx, item); b < end; b += step) {
      const int64_t e = std::min(b + step, end);
      chunk(ctx, scratch, rows_, b, e, e < end ? stream(gate, e) : next);
    }
  }

 private:
  const PanelMatrix& matrix(const RunContext& ctx, int id) const { return (*ctx.matrices)[id]; }
  // Panels of an item.
  int64_t begin(int64_t item) const {
    return rows_ <= kStreamRows ? streams_.begin(item) : item * step_;
  }
  int64_t end(const RunContext& ctx, int64_t item) const {
    if (rows_ <= kStreamRows) return streams_.end(item);
    return std::min((item + 1) * step_, matrix(ctx, s_.gate).num_panels);
  }

  void chunk(RunContext& ctx, ThreadScratch& scratch, int64_t rows, int64_t begin, int64_t end,
             const PanelStream& next) {
    const Buffer& in = ctx.buffer(s_.in);
    const PanelMatrix &gate = matrix(ctx, s_.gate), &up = matrix(ctx, s_.up);
    const int64_t ld = (end - begin) * kPanelRows, n = columns(gate, begin, end);
    const int64_t c = begin * kPanelRows;
    float* g = scratch.tile;
    float* u = g + rows * ld;
    product(in, gate, 0, rows, begin, end, g - c, ld, stream(up, begin));
    product(in, up, 0, rows, begin, end, u - c, ld, next);
    add_bias(s_.gate_bias, c, n, g, ld, rows);
    add_bias(s_.up_bias, c, n, u, ld, rows);
    add_adapters(ctx, s_.rows, 0, s_.gate, begin, end, g, ld);
    add_adapters(ctx, s_.rows, 1, s_.up, begin, end, u, ld);
    for (int64_t r = 0; r < rows; ++r) finish_row(ctx, g + r * ld, u + r * ld, r, c, n);
  }

  void finish_row(RunContext& ctx, float* g, const float* u, int64_t row, int64_t column,
                  int64_t n) {
    if (s_.activation == Activation::kSilu) ctx.kernels->silu_mul(g, u, n);
    if (s_.activation == Activation::kGelu) ctx.kernels->gelu_mul(g, u, n);
    if (s_.activation == Activation::kGeluErf) ctx.kernels->gelu_erf_mul(g, u, n);
    if (s_.out_f32 >= 0) {
      Buffer& out = ctx.buffer(s_.out_f32);
      std::copy(g, g + n, out.f32 + row * out.width + column);
    }
    if (s_.out_q8 >= 0) {
      // quantize_groups counts groups from the row's first element.
      quantize_groups(g - column, ctx.buffer(s_.out_q8).q8, row, column / kGroup,
                      (column + n + kGroup - 1) / kGroup);
    }
  }

  GatedSpec s_;
  int64_t rows_ = 0;
  int64_t num_items_ = 0;
  PanelItems streams_;  // with few rows
  int64_t step_ = 2;    // panels in an item, with many
};

}  // namespace

std::unique_ptr<Instruction> make(LinearSpec s) {
  return std::make_unique<Linear>(std::move(s));
}
std::unique_ptr<Instruction> make(GatedSpec s) {
  return std::make_unique<Gated>(std::move(s));
}

}  // namespace octavo
