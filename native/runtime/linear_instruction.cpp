// Matrix products with bias, adapters and residual.

#include "runtime/products.h"

namespace octavo {
namespace {

// Panels of an item of many rows in bf16: activations take twice the memory, and more than the
// second-level cache has from some thousand columns on, so that a thread reads them as seldom as it
// can.
constexpr size_t kBf16ChunkPanels = 18;

// The chunk of a region that leaves its threads the least to wait for at its end.
// num_chunks(panels): how many such chunks the region has.
template <class NumChunks>
int64_t even_chunk(int64_t threads, NumChunks&& num_chunks) {
  int64_t best = 0, least = 0;
  for (const int64_t step : kChunkPanels) {
    const int64_t chunks = num_chunks(step);
    const int64_t longest = (chunks + threads - 1) / threads * step;
    if (best == 0 || longest < least) best = step, least = longest;
  }
  return best;
}

class Linear : public Instruction {
 public:
  explicit Linear(LinearSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "linear"; }

  int64_t prepare(RunContext& ctx) override {
    const RowShares row_shares(ctx, s_.rows, ctx.buffer(s_.in), !has_adapters(ctx, s_.rows));
    if (row_shares == row_shares_) return num_items_;  // matrices stay
    row_shares_ = row_shares;
    return num_items_ = cut(ctx);
  }

  PanelStream weights(const RunContext& ctx, int tid) const override {
    if (rows() == 0 || rows() > kStreamRows) return {};
    return piece_stream(ctx, first_piece_[num_items_ * tid / ctx.pool->size()]);
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    for (int64_t p = first_piece_[item]; p < first_piece_[item + 1]; ++p) {
      const Piece& i = pieces_[p];
      const bool more =
          p + 1 < first_piece_[item + 1] || follows(item, num_items_, ctx.pool->size());
      const PanelStream next = more ? piece_stream(ctx, p + 1) : scratch.next;
      part(ctx, scratch, i, matrix(ctx, i.part), next);
    }
  }

 private:
  // Panels of one part; an item has one or several.
  struct Piece {
    size_t part;
    int64_t begin;
    int64_t end;
    int64_t row_begin;
    int64_t row_end;
  };

  int64_t rows() const { return row_shares_.rows(); }
  const PanelMatrix& matrix(const RunContext& ctx, size_t part) const {
    return (*ctx.matrices)[s_.parts[part].matrix];
  }
  // Where a piece begins; nowhere past the last one, since the last items may be empty.
  PanelStream piece_stream(const RunContext& ctx, int64_t piece) const {
    if (piece >= static_cast<int64_t>(pieces_.size())) return {};
    const Piece& p = pieces_[piece];
    return stream(matrix(ctx, p.part), p.begin);
  }

  // Cuts the region into items; returns their number.
  int64_t cut(const RunContext& ctx) {
    if (rows() == 0) return 0;
    if (rows() <= kStreamRows) return cut_runs(ctx, kStreamBytes, true);
    if (row_shares_.many_bf16()) return cut_runs(ctx, kBf16ChunkPanels, false);
    if (row_shares_.count() > 1) return cut_runs(ctx, kChunkPanels[0], false);
    return cut_chunks(ctx);
  }

  // Each thread takes one run of panels, of all parts, in items of about so many bytes or panels.
  int64_t cut_runs(const RunContext& ctx, size_t size, bool of_bytes) {
    std::vector<PanelItems::Part> parts;
    for (size_t p = 0; p < s_.parts.size(); ++p) {
      const PanelMatrix& w = matrix(ctx, p);
      parts.push_back({w.num_panels, of_bytes ? w.panel_bytes : 1});
    }
    PanelItems cuts;
    const int64_t items = cuts.cut(parts, row_shares_.panel_threads(ctx), size);
    pieces_.clear();
    first_piece_.assign(1, 0);
    for (int64_t share = 0; share < row_shares_.count(); ++share) {
      const int64_t from = row_shares_.begin(share), to = row_shares_.begin(share + 1);
      for (int64_t i = 0; i < items; ++i) {
        int64_t first = 0;  // panel of part p, of all
        for (size_t p = 0; p < parts.size(); first += parts[p++].panels) {
          const int64_t begin = std::max<int64_t>(0, cuts.begin(i) - first);
          const int64_t end = std::min(parts[p].panels, cuts.end(i) - first);
          if (begin < end) pieces_.push_back({p, begin, end, from, to});
        }
        first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
      }
    }
    return items * row_shares_.count();
  }

  int64_t cut_chunks(const RunContext& ctx) {
    pieces_.clear();
    first_piece_.clear();
    const int64_t step = even_chunk(ctx.pool->size(), [&](int64_t panels) {
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
        pieces_.push_back({p, b, std::min(b + step, panels), 0, rows()});
      }
    }
    first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
    return static_cast<int64_t>(pieces_.size());
  }

  void part(RunContext& ctx, ThreadScratch& scratch, const Piece& piece, const PanelMatrix& w,
            const PanelStream& next) {
    const auto [place, begin, end, from, to] = piece;
    const int64_t rows = to - from;
    const LinearPart& p = s_.parts[place];
    const Buffer& in = ctx.buffer(s_.in);
    const bool to_logits = p.out < 0;
    float* out = to_logits ? ctx.logits : ctx.buffer(p.out).f32;
    const int64_t ldo = to_logits ? w.n : ctx.buffer(p.out).width;
    if (p.residual < 0) {
      // linear writes at row * ldo + weight row.
      product(in, w, from, to, begin, end, out + p.column, ldo, next);
      const int64_t c = begin * kPanelRows;
      add_bias(p.bias, c, columns(w, begin, end), out + from * ldo + p.column + c, ldo, rows);
      add_adapters(ctx, s_.rows, place, p.matrix, begin, end, out + p.column + c, ldo);
      return;
    }
    const Buffer& res = ctx.buffer(p.residual);
    if (in.f32 == nullptr && in.q8.bf16 && p.bias.empty() && !has_adapters(ctx, s_.rows)) {
      product(in, w, from, to, begin, end, out + p.column, ldo, next,
              {res.f32 + p.column, res.width});
      return;
    }
    const int64_t step = panels_in_tile(rows, 1);
    for (int64_t b = begin; b < end; b += step) {
      const int64_t e = std::min(b + step, end), n = columns(w, b, e), c = b * kPanelRows;
      const int64_t ld = (e - b) * kPanelRows;
      product(in, w, from, to, b, e, scratch.tile - c - from * ld, ld,
              e < end ? stream(w, e) : next);
      add_bias(p.bias, c, n, scratch.tile, ld, rows);
      add_adapters(ctx, s_.rows, place, p.matrix, b, e, scratch.tile, ld);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = p.column + c;
        ctx.kernels->add(res.f32 + (from + r) * res.width + at, scratch.tile + r * ld,
                         out + (from + r) * ldo + at, n);
      }
    }
  }

  LinearSpec s_;
  RowShares row_shares_;
  int64_t num_items_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_piece_;  // of each item, and one past the last
};

}  // namespace

std::unique_ptr<Instruction> make(LinearSpec s) {
  return std::make_unique<Linear>(std::move(s));
}

}  // namespace octavo
