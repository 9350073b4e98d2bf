// Products of heads: each head of a row by its own rows of one matrix, as multi-head latent
// attention goes into the space of latents and back.
//
// An item is one head of some adjacent rows. It quantizes its own input where the matrix wants
// that: no other item reads it.

#include <algorithm>

#include "runtime/instructions.h"

namespace octavo {
namespace {

constexpr int64_t kItemRows = 96;  // a head's weights stay in cache for all of them

class HeadLinear : public Instruction {
 public:
  explicit HeadLinear(HeadLinearSpec spec) : s_(spec) {}
  const char* name() const override { return "head_linear"; }

  int64_t prepare(RunContext& ctx) override {
    const PanelMatrix& w = matrix(ctx);
    rows_ = ctx.rows(s_.rows);
    n_ = w.n / s_.num_heads;
    // Rows and results that a thread's tile has room for; sizes are at most 8192
    // (backends/cpu/lower_latent.py).
    const int64_t floats = w.k / 2 + kGroup + n_ + 2 * kPanelRows;
    const int64_t fit = kTileFloats / floats - QuantizedRows::kMaxTile - 1;
    step_ = std::clamp<int64_t>(fit, 1, kItemRows);
    return (rows_ + step_ - 1) / step_ * s_.num_heads;
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const int64_t head = item % s_.num_heads, first = item / s_.num_heads * step_;
    const int64_t rows = std::min(step_, rows_ - first);
    const PanelMatrix& w = matrix(ctx);
    const Buffer& in = ctx.buffer(s_.in);
    const float* x = in.f32 + first * in.width + head * w.k;
    if (is_float(w.layout)) {
      return finish(ctx, scratch.tile, head, first, rows,
                    [&](auto begin, auto end, float* out, int64_t ldo) {
                      linear_f32(w, x, in.width, 0, rows, begin, end, out, ldo);
                    });
    }
    QuantizedRows q = QuantizedRows::in(scratch.tile, rows, w.k, ctx.products);
    quantize_rows(x, in.width, q, 0, rows, 0, q.groups);
    float* rest = scratch.tile + QuantizedRows::bytes(rows, w.k, ctx.products) / sizeof(float);
    finish(ctx, rest, head, first, rows, [&](auto begin, auto end, float* out, int64_t ldo) {
      linear_q8(w, q, 0, rows, begin, end, out, ldo);
    });
  }

 private:
  const PanelMatrix& matrix(const RunContext& ctx) const { return (*ctx.matrices)[s_.matrix]; }

  // product(first panel, last, out, ldo) writes at row * ldo + row of the matrix. A head that
  // shares panels with its neighbours is computed in `tile` first.
  template <class F>
  void finish(RunContext& ctx, float* tile, int64_t head, int64_t first, int64_t rows, F product) {
    Buffer& buffer = ctx.buffer(s_.out);
    const int64_t begin = head * n_ / kPanelRows;
    const int64_t end = ((head + 1) * n_ + kPanelRows - 1) / kPanelRows;
    float* out = buffer.f32 + first * buffer.width;
    if (n_ % kPanelRows == 0) return product(begin, end, out, buffer.width);
    const int64_t ld = (end - begin) * kPanelRows, at = head * n_ - begin * kPanelRows;
    product(begin, end, tile - begin * kPanelRows, ld);
    for (int64_t r = 0; r < rows; ++r) {
      const float* y = tile + r * ld + at;
      std::copy(y, y + n_, out + r * buffer.width + head * n_);
    }
  }

  HeadLinearSpec s_;
  int64_t rows_ = 0;
  int64_t n_ = 0;     // of a head
  int64_t step_ = 1;  // rows of an item
};

}  // namespace

std::unique_ptr<Instruction> make(HeadLinearSpec s) {
  return std::make_unique<HeadLinear>(s);
}

}  // namespace octavo
