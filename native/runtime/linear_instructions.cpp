// Matrix products with their epilogues: bias, residual, gated activation, quantization.
//
// The output columns of a product are cut into chunks of panels. With few rows each thread takes
// one adjacent run of panels, so that it reads one stream of memory; with many, chunks are handed
// out one by one, so that a slow core does not hold up the other. Either way an output element is
// computed by one thread in one order.

#include <algorithm>

#include "runtime/adapters.h"
#include "runtime/instructions.h"

namespace octavo {
namespace {

constexpr int64_t kStreamRows = 4;   // up to here the time is that of reading the weights
constexpr int64_t kChunkPanels = 4;  // 64 columns: a chunk's results stay in L2 for the epilogue
constexpr size_t kStreamBytes = 48 << 10;  // of weights in one item, when reading them is the cost
// Where an item reads two matrices, each begins with a wait for memory: as much of each at a time,
// unless there would be fewer items than these.
constexpr size_t kMostStreamBytes = 256 << 10;
constexpr size_t kStreamItems = 32;

// Panels in one item, even.
inline int64_t item_panels(int64_t rows, const PanelMatrix& w, size_t bytes = kStreamBytes) {
  if (rows > kStreamRows) return kChunkPanels;
  const int64_t fit = static_cast<int64_t>(bytes / std::max<size_t>(w.panel_bytes, 1));
  return std::max<int64_t>(2, fit / 2 * 2);
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
                    int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo) {
  if (in.f32 != nullptr) {
    linear_f32(w, in.f32, in.width, row_begin, row_end, panel_begin, panel_end, out, ldo);
  } else {
    linear_q8(w, in.q8, row_begin, row_end, panel_begin, panel_end, out, ldo);
  }
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
    rows_ = ctx.rows(s_.rows);
    items_.clear();
    if (rows_ == 0) return 0;
    for (size_t p = 0; p < s_.parts.size(); ++p) {
      const PanelMatrix& w = (*ctx.matrices)[s_.parts[p].matrix];
      const int64_t step = item_panels(rows_, w);
      for (int64_t b = 0; b < w.num_panels; b += step) {
        items_.push_back({p, b, std::min(b + step, w.num_panels)});
      }
    }
    return static_cast<int64_t>(items_.size());
  }

  const uint8_t* warm(const RunContext& ctx, int tid) const override {
    if (rows_ > kStreamRows || items_.empty()) return nullptr;
    const Item& first = items_[items_.size() * tid / ctx.pool->size()];
    const PanelMatrix& w = (*ctx.matrices)[s_.parts[first.part].matrix];
    return w.data + static_cast<size_t>(first.begin) * w.panel_bytes;
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Item& i = items_[item];
    part(ctx, scratch, i.part, (*ctx.matrices)[s_.parts[i.part].matrix], rows_, i.begin, i.end);
  }

 private:
  struct Item {
    size_t part;
    int64_t begin;  // panels
    int64_t end;
  };

  void part(RunContext& ctx, ThreadScratch& scratch, size_t place, const PanelMatrix& w,
            int64_t rows, int64_t begin, int64_t end) {
    const LinearPart& p = s_.parts[place];
    const Buffer& in = ctx.buffer(s_.in);
    const bool to_logits = p.out < 0;
    float* out = to_logits ? ctx.logits : ctx.buffer(p.out).f32;
    const int64_t ldo = to_logits ? w.n : ctx.buffer(p.out).width;
    if (p.residual < 0) {
      // linear writes at row * ldo + weight row.
      product(in, w, 0, rows, begin, end, out + p.column, ldo);
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
      product(in, w, 0, rows, b, e, scratch.tile - c, ld);
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
  std::vector<Item> items_;
};

class Gated : public Instruction {
 public:
  explicit Gated(GatedSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "gated"; }

  int64_t prepare(RunContext& ctx) override {
    rows_ = ctx.rows(s_.rows);
    if (rows_ == 0) return 0;
    const PanelMatrix& w = (*ctx.matrices)[s_.gate];
    const size_t bytes = std::clamp(w.size_bytes() / kStreamItems, kStreamBytes, kMostStreamBytes);
    step_ = std::min(panels_in_tile(rows_, 2), item_panels(rows_, w, bytes));
    return (w.num_panels + step_ - 1) / step_;
  }

  const uint8_t* warm(const RunContext& ctx, int tid) const override {
    if (rows_ > kStreamRows || rows_ == 0) return nullptr;
    const PanelMatrix& w = (*ctx.matrices)[s_.gate];
    const int64_t items = (w.num_panels + step_ - 1) / step_;
    return w.data + static_cast<size_t>(items * tid / ctx.pool->size() * step_) * w.panel_bytes;
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const int64_t panels = (*ctx.matrices)[s_.gate].num_panels;
    chunk(ctx, scratch, rows_, item * step_, std::min((item + 1) * step_, panels));
  }

 private:
  void chunk(RunContext& ctx, ThreadScratch& scratch, int64_t rows, int64_t begin, int64_t end) {
    const Buffer& in = ctx.buffer(s_.in);
    const PanelMatrix& gate = (*ctx.matrices)[s_.gate];
    const PanelMatrix& up = (*ctx.matrices)[s_.up];
    const int64_t ld = (end - begin) * kPanelRows, n = columns(gate, begin, end);
    const int64_t c = begin * kPanelRows;
    float* g = scratch.tile;
    float* u = g + rows * ld;
    product(in, gate, 0, rows, begin, end, g - c, ld);
    product(in, up, 0, rows, begin, end, u - c, ld);
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
  int64_t step_ = 2;  // panels in an item
};

}  // namespace

std::unique_ptr<Instruction> make(LinearSpec s) {
  return std::make_unique<Linear>(std::move(s));
}
std::unique_ptr<Instruction> make(GatedSpec s) {
  return std::make_unique<Gated>(std::move(s));
}

}  // namespace octavo
