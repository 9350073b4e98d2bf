// Two products and a gated activation of their results.

#include "runtime/products.h"

namespace octavo {
namespace {

// Where an item reads two matrices, each begins with a wait for memory: as much of each at a time,
// unless there would be fewer items than these.
constexpr size_t kMostStreamBytes = 256 << 10;
constexpr size_t kStreamItems = 32;
// Rows whose results are finished at a time.
constexpr int64_t kFinishRows = 8;
// Panels of each matrix in an item of many rows in bf16.
constexpr size_t kBf16PairPanels = 8;

class Gated : public Instruction {
 public:
  explicit Gated(GatedSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "gated"; }

  int64_t prepare(RunContext& ctx) override {
    const bool pairs = can_pair(ctx);
    const RowShares row_shares(ctx, s_.rows, ctx.buffer(s_.in), !has_adapters(ctx, s_.rows));
    if (row_shares == row_shares_ && pairs == pairs_) return num_items_;  // matrices stay
    row_shares_ = row_shares, pairs_ = pairs;
    return num_items_ = cut(ctx);
  }

  PanelStream weights(const RunContext& ctx, int tid) const override {
    if (rows() == 0 || rows() > kStreamRows) return {};
    return stream(matrix(ctx, s_.gate), begin(num_items_ * tid / ctx.pool->size()));
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    if (pairs_) return run_pairs(ctx, item);
    const PanelMatrix& gate = matrix(ctx, s_.gate);
    const bool more = follows(item, num_items_, ctx.pool->size());
    const PanelStream next = more ? stream(gate, begin(item + 1)) : scratch.next;
    const int64_t share = item / panel_items_;
    const int64_t from = row_shares_.begin(share), to = row_shares_.begin(share + 1);
    const int64_t step = panels_in_tile(to - from, 2);
    for (int64_t b = begin(item), end = this->end(ctx, item); b < end; b += step) {
      const int64_t e = std::min(b + step, end);
      chunk(ctx, scratch, from, to, b, e, e < end ? stream(gate, e) : next);
    }
  }

 private:
  const PanelMatrix& matrix(const RunContext& ctx, int id) const { return (*ctx.matrices)[id]; }
  int64_t rows() const { return row_shares_.rows(); }

  // Cuts the region into items; returns their number.
  int64_t cut(const RunContext& ctx) {
    const PanelMatrix &gate = matrix(ctx, s_.gate), &up = matrix(ctx, s_.up);
    if (rows() == 0) return 0;
    if (rows() <= kStreamRows) {
      const size_t most = std::max(gate.size_bytes(), up.size_bytes()) / kStreamItems;
      const size_t bytes = std::clamp(most, kStreamBytes, kMostStreamBytes);
      return panel_items_ = shares_.cut({{gate.num_panels, gate.panel_bytes + up.panel_bytes}},
                                        ctx.pool->size(), 2 * bytes);
    }
    if (pairs_) {
      const int threads = row_shares_.panel_threads(ctx);
      panel_items_ = shares_.cut({{gate.num_panels, 1}}, threads, kBf16PairPanels);
      return panel_items_ * row_shares_.count();
    }
    // An even number, since groups of 32 columns are quantized here.
    step_ = std::min(panels_in_tile(rows(), 2), kChunkPanels[0]);
    panel_items_ = (gate.num_panels + step_ - 1) / step_;
    return panel_items_ * row_shares_.count();
  }
  // Panels of an item that is not of pairs.
  int64_t begin(int64_t item) const {
    return rows() <= kStreamRows ? shares_.begin(item) : item % panel_items_ * step_;
  }
  int64_t end(const RunContext& ctx, int64_t item) const {
    if (rows() <= kStreamRows) return shares_.end(item);
    return std::min(begin(item) + step_, matrix(ctx, s_.gate).num_panels);
  }

  // Both products at once, a panel of each, where nothing but the activation is done with them.
  bool can_pair(const RunContext& ctx) const {
    const Buffer& in = ctx.buffer(s_.in);
    return in_many_bf16_rows(ctx, ctx.rows(s_.rows)) && in.f32 == nullptr &&
           pairs_products(in.q8) && s_.out_q8 >= 0 && s_.out_f32 < 0 && s_.gate_bias.empty() &&
           s_.up_bias.empty() && !has_adapters(ctx, s_.rows) &&
           matrix(ctx, s_.gate).n % kGroup == 0;
  }

  void run_pairs(RunContext& ctx, int64_t item) const {
    const int64_t share = item / panel_items_, i = item % panel_items_;
    Taken taken{*this, ctx};
    linear_pair(matrix(ctx, s_.gate), matrix(ctx, s_.up), ctx.buffer(s_.in).q8,
                row_shares_.begin(share), row_shares_.begin(share + 1), shares_.begin(i),
                shares_.end(i), Taken::take, &taken);
  }

  struct Taken {
    const Gated& gated;
    RunContext& ctx;

    static void take(void* context, int64_t row, int64_t rows, int64_t panel, float* g, float* u) {
      const Taken& t = *static_cast<const Taken*>(context);
      t.gated.activate(t.ctx, g, u, rows * kPanelRows);
      quantize_block(g, t.ctx.buffer(t.gated.s_.out_q8).q8, row, rows, panel * kPanelRows);
    }
  };

  void activate(const RunContext& ctx, float* g, const float* u, int64_t n) const {
    if (s_.activation == Activation::kSilu) ctx.kernels->silu_mul(g, u, n);
    if (s_.activation == Activation::kGelu) ctx.kernels->gelu_mul(g, u, n);
    if (s_.activation == Activation::kGeluErf) ctx.kernels->gelu_erf_mul(g, u, n);
  }

  // Rows [from, to) by panels [begin, end).
  void chunk(RunContext& ctx, ThreadScratch& scratch, int64_t from, int64_t to, int64_t begin,
             int64_t end, const PanelStream& next) {
    const int64_t rows = to - from;
    const Buffer& in = ctx.buffer(s_.in);
    const PanelMatrix &gate = matrix(ctx, s_.gate), &up = matrix(ctx, s_.up);
    const int64_t ld = (end - begin) * kPanelRows, n = columns(gate, begin, end);
    const int64_t c = begin * kPanelRows;
    float* g = scratch.tile;
    float* u = g + rows * ld;
    product(in, gate, from, to, begin, end, g - c - from * ld, ld, stream(up, begin));
    product(in, up, from, to, begin, end, u - c - from * ld, ld, next);
    add_bias(s_.gate_bias, c, n, g, ld, rows);
    add_bias(s_.up_bias, c, n, u, ld, rows);
    add_adapters(ctx, s_.rows, 0, s_.gate, begin, end, g, ld);
    add_adapters(ctx, s_.rows, 1, s_.up, begin, end, u, ld);
    for (int64_t r = 0; r < rows; r += kFinishRows) {
      const int64_t count = std::min(kFinishRows, rows - r);
      finish(ctx, g + r * ld, u + r * ld, ld, from + r, count, c, n);
    }
  }

  // Results of `rows` rows, which stay in the first-level cache: activated, and kept or quantized.
  void finish(RunContext& ctx, float* g, const float* u, int64_t ld, int64_t row, int64_t rows,
              int64_t column, int64_t n) {
    for (int64_t r = 0; r < rows; ++r) activate(ctx, g + r * ld, u + r * ld, n);
    if (s_.out_f32 >= 0) {
      Buffer& out = ctx.buffer(s_.out_f32);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(g + r * ld, n, out.f32 + (row + r) * out.width + column);
      }
    }
    if (s_.out_q8 >= 0) {
      // Groups are counted from a row's first element.
      quantize_rows(g - column, ld, ctx.buffer(s_.out_q8).q8, row, rows, column / kGroup,
                    (column + n + kGroup - 1) / kGroup);
    }
  }

  GatedSpec s_;
  RowShares row_shares_;
  bool pairs_ = false;
  int64_t num_items_ = 0;
  PanelItems shares_;        // with few rows, or pairs
  int64_t panel_items_ = 1;  // of a share of rows
  int64_t step_ = 2;         // panels in an item, with many rows
};

}  // namespace

std::unique_ptr<Instruction> make(GatedSpec s) {
  return std::make_unique<Gated>(std::move(s));
}

}  // namespace octavo
