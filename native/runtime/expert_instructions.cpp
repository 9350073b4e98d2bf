// Mixtures of experts: a grouped product per expert.
//
// The rows of a step are sorted by expert, so that each expert's matrices are read once for all of
// its rows: sort, gather (rows as the products want them, adjacent), gate and up with activation,
// down, and at last each row's weighted sum in the order of its choice. A row's arithmetic does not
// depend on which rows share its expert, so its bits are the same in any company.

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/expert_layout.h"
#include "runtime/instructions.h"

namespace octavo {
namespace {

constexpr int64_t kFewRows = 4;            // of a step: then the time is that of reading weights
constexpr int64_t kChunkPanels = 4;        // of an item otherwise
constexpr size_t kStreamBytes = 48 << 10;  // of weights in an item of few rows

// What the instructions of one mixture share.
struct Mixture {
  ExpertsSpec s;
  ExpertSizes sizes;

  ExpertScratch scratch(const RunContext& ctx) const {
    return ExpertScratch(sizes, ctx.buffer(s.scratch).bytes);
  }
  int64_t rows(const RunContext& ctx) const { return ctx.rows(s.rows); }
  int64_t pairs(const RunContext& ctx) const { return rows(ctx) * sizes.top_k; }
};
using Shared = std::shared_ptr<const Mixture>;

// The rows of one expert in the form that a product reads.
struct RowsView {
  const float* f32 = nullptr;
  QuantizedRows q8;

  RowsView(const RunContext& ctx, uint8_t* memory, int64_t rows, int64_t width, bool quantized) {
    if (quantized) {
      q8 = QuantizedRows::in(memory, rows, width, ctx.products);
    } else {
      f32 = reinterpret_cast<const float*>(memory);
    }
  }

  void times(const PanelMatrix& w, int64_t row_begin, int64_t row_end, int64_t panel_begin,
             int64_t panel_end, float* out, int64_t ldo) const {
    if (f32 != nullptr) {
      linear_f32(w, f32, w.k, row_begin, row_end, panel_begin, panel_end, out, ldo);
    } else {
      linear_q8(w, q8, row_begin, row_end, panel_begin, panel_end, out, ldo);
    }
  }
};

class Sort : public Instruction {
 public:
  explicit Sort(Shared m) : m_(std::move(m)) {}
  const char* name() const override { return "sort_experts"; }
  int64_t prepare(RunContext& ctx) override { return m_->rows(ctx) > 0 ? 1 : 0; }
  void run(RunContext& ctx, int64_t, ThreadScratch&) override {
    ExpertScratch scratch = m_->scratch(ctx);
    sort_by_expert(m_->sizes, ctx.buffer(m_->s.routes).f32, m_->rows(ctx), ctx.products, scratch);
  }

 private:
  Shared m_;
};

// Copies each expert's rows to where they are adjacent. Quantized rows are copied as they are, or
// made here in the expert's own order of columns.
class Gather : public Instruction {
 public:
  explicit Gather(Shared m) : m_(std::move(m)) {}
  const char* name() const override { return "gather_experts"; }
  int64_t prepare(RunContext& ctx) override { return m_->sizes.most_active(m_->pairs(ctx)); }
  void run(RunContext& ctx, int64_t item, ThreadScratch& thread) override {
    const ExpertScratch scratch = m_->scratch(ctx);
    if (item >= *scratch.num_active) return;
    const ExpertRows& e = scratch.active[item];
    for (int32_t i = 0; i < e.count; ++i) {
      const int64_t row = scratch.pair_of[e.first + i] / m_->sizes.top_k;
      if (m_->s.in_order.empty()) {
        copy(ctx, row, e, i, scratch.in + e.in_at);
      } else {
        reorder(ctx, row, e, i, scratch.in + e.in_at, thread.tile);
      }
    }
  }

 private:
  void copy(const RunContext& ctx, int64_t row, const ExpertRows& e, int64_t to,
            uint8_t* memory) const {
    const Buffer& from = ctx.buffer(m_->s.in);
    const int64_t width = m_->sizes.features;
    if (!m_->sizes.quantized_in) {
      std::copy_n(from.f32 + row * width, width, reinterpret_cast<float*>(memory) + to * width);
      return;
    }
    QuantizedRows::in(memory, e.count, width, ctx.products).copy_row(to, from.q8, row);
  }

  void reorder(const RunContext& ctx, int64_t row, const ExpertRows& e, int64_t to, uint8_t* memory,
               float* ordered) const {
    const int64_t width = m_->sizes.features;
    const float* x = ctx.buffer(m_->s.in).f32 + row * width;
    const int32_t* order = m_->s.in_order.data() + e.expert * width;
    for (int64_t i = 0; i < width; ++i) ordered[i] = x[order[i]];
    QuantizedRows rows = QuantizedRows::in(memory, e.count, width, ctx.products);
    quantize_groups(ordered, rows, to, 0, rows.groups);
  }

  Shared m_;
};

// An item is some panels of one expert, by all of its rows.
class ExpertItems {
 public:
  int64_t cut(const Mixture& m, const RunContext& ctx, const PanelMatrix& w) {
    const int64_t pairs = m.pairs(ctx);
    if (pairs == 0) return 0;
    step_ = kChunkPanels;
    if (m.rows(ctx) <= kFewRows) {
      const auto fit = static_cast<int64_t>(kStreamBytes / std::max<size_t>(w.panel_bytes, 1));
      step_ = std::max<int64_t>(2, fit / 2 * 2);
    }
    panels_ = w.num_panels;
    per_expert_ = (panels_ + step_ - 1) / step_;
    return m.sizes.most_active(pairs) * per_expert_;
  }
  int64_t expert(int64_t item) const { return item / per_expert_; }
  int64_t begin(int64_t item) const { return item % per_expert_ * step_; }
  int64_t end(int64_t item) const { return std::min(begin(item) + step_, panels_); }

 private:
  int64_t panels_ = 0, step_ = 2, per_expert_ = 1;
};

// Adds an expert's bias, of which `bias` holds [expert][n], to columns [column, column + count).
void add_expert_bias(const std::vector<float>& bias, int64_t expert, int64_t n, int64_t column,
                     int64_t count, float* row) {
  if (bias.empty()) return;
  const float* own = bias.data() + expert * n + column;
  for (int64_t c = 0; c < count; ++c) row[c] += own[c];
}

// hidden = act(in * gate^T) * (in * up^T) of each expert, quantized if down reads int8.
class GateUp : public Instruction {
 public:
  explicit GateUp(Shared m) : m_(std::move(m)) {}
  const char* name() const override { return "gate_up_experts"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(*m_, ctx, (*ctx.matrices)[m_->s.gate[0]]);
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& thread) override {
    const ExpertScratch scratch = m_->scratch(ctx);
    const int64_t active = items_.expert(item);
    if (active >= *scratch.num_active) return;
    const ExpertRows& e = scratch.active[active];
    const int64_t begin = items_.begin(item), end = items_.end(item);
    const int64_t most = kTileFloats / (2 * (end - begin) * kPanelRows);
    for (int64_t row = 0; row < e.count; row += most) {
      rows(ctx, scratch, e, row, std::min<int64_t>(row + most, e.count), begin, end, thread.tile);
    }
  }

 private:
  void rows(RunContext& ctx, const ExpertScratch& scratch, const ExpertRows& e, int64_t row_begin,
            int64_t row_end, int64_t begin, int64_t end, float* tile) {
    const PanelMatrix& gate = (*ctx.matrices)[m_->s.gate[e.expert]];
    const PanelMatrix& up = (*ctx.matrices)[m_->s.up[e.expert]];
    const int64_t ld = (end - begin) * kPanelRows, c = begin * kPanelRows;
    const int64_t n = std::min(c + ld, gate.n) - c;
    const RowsView in(ctx, scratch.in + e.in_at, e.count, m_->sizes.features,
                      m_->sizes.quantized_in);
    float* g = tile;
    float* u = tile + (row_end - row_begin) * ld;
    // A product writes row r of the range at out + r * ldo.
    in.times(gate, row_begin, row_end, begin, end, g - c - row_begin * ld, ld);
    in.times(up, row_begin, row_end, begin, end, u - c - row_begin * ld, ld);
    for (int64_t r = row_begin; r < row_end; ++r, g += ld, u += ld) {
      add_expert_bias(m_->s.gate_bias, e.expert, gate.n, c, n, g);
      add_expert_bias(m_->s.up_bias, e.expert, gate.n, c, n, u);
      activate(ctx, g, u, n);
      keep(ctx, scratch.hidden + e.hidden_at, e.count, r, c, n, g);
    }
  }

  void activate(RunContext& ctx, float* g, const float* u, int64_t n) const {
    switch (m_->s.activation) {
      case Activation::kNone:
        return;
      case Activation::kSilu:
        return ctx.kernels->silu_mul(g, u, n);
      case Activation::kGelu:
        return ctx.kernels->gelu_mul(g, u, n);
      case Activation::kGeluErf:
        return ctx.kernels->gelu_erf_mul(g, u, n);
      case Activation::kClampedSwiglu:
        return ctx.kernels->clamped_swiglu(g, u, n, m_->s.alpha, m_->s.limit);
    }
  }

  // Puts columns [c, c + n) of hidden row r in place.
  void keep(const RunContext& ctx, uint8_t* memory, int64_t count, int64_t r, int64_t c, int64_t n,
            const float* x) const {
    const int64_t hidden = m_->sizes.hidden;
    if (m_->sizes.quantized_hidden) {
      QuantizedRows rows = QuantizedRows::in(memory, count, hidden, ctx.products);
      quantize_groups(x - c, rows, r, c / kGroup, (c + n + kGroup - 1) / kGroup);
    } else {
      std::copy_n(x, n, reinterpret_cast<float*>(memory) + r * hidden + c);
    }
  }

  Shared m_;
  ExpertItems items_;
};

class Down : public Instruction {
 public:
  explicit Down(Shared m) : m_(std::move(m)) {}
  const char* name() const override { return "down_experts"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(*m_, ctx, (*ctx.matrices)[m_->s.down[0]]);
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const ExpertScratch scratch = m_->scratch(ctx);
    const int64_t active = items_.expert(item);
    if (active >= *scratch.num_active) return;
    const ExpertRows& e = scratch.active[active];
    const PanelMatrix& w = (*ctx.matrices)[m_->s.down[e.expert]];
    const int64_t begin = items_.begin(item), end = items_.end(item), ld = m_->sizes.features;
    const RowsView in(ctx, scratch.hidden + e.hidden_at, e.count, w.k, m_->sizes.quantized_hidden);
    float* out = scratch.out + e.first * ld;
    in.times(w, 0, e.count, begin, end, out, ld);
    const int64_t c = begin * kPanelRows, n = std::min(end * kPanelRows, w.n) - c;
    for (int64_t r = 0; r < e.count; ++r) {
      add_expert_bias(m_->s.down_bias, e.expert, w.n, c, n, out + r * ld + c);
    }
  }

 private:
  Shared m_;
  ExpertItems items_;
};

// out = residual + the weighted sum of each row's experts, in the order of its choice.
class Combine : public Instruction {
 public:
  explicit Combine(Shared m) : m_(std::move(m)) {}
  const char* name() const override { return "combine_experts"; }
  int64_t prepare(RunContext& ctx) override { return items_.cut(m_->rows(ctx), ctx.pool->size()); }
  void run(RunContext& ctx, int64_t item, ThreadScratch& thread) override {
    const ExpertScratch scratch = m_->scratch(ctx);
    const int64_t k = m_->sizes.top_k, width = m_->sizes.features;
    const float* routes = ctx.buffer(m_->s.routes).f32;
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      float* out = ctx.buffer(m_->s.out).f32 + r * width;
      float* sum = m_->s.residual < 0 ? out : thread.tile;
      for (int64_t rank = 0; rank < k; ++rank) {
        const float* x = scratch.out + scratch.place_of[r * k + rank] * width;
        const float weight = routes[r * 2 * k + k + rank];
        if (rank == 0) {
          ctx.kernels->scale(x, sum, width, weight);
        } else {
          ctx.kernels->add_scaled(sum, x, width, weight);
        }
      }
      if (m_->s.residual < 0) continue;
      ctx.kernels->add(ctx.buffer(m_->s.residual).f32 + r * width, sum, out, width);
    }
  }

 private:
  Shared m_;
  RowItems items_;
};

}  // namespace

std::vector<std::unique_ptr<Instruction>> make(ExpertsSpec spec, const ExpertSizes& sizes) {
  const Shared m = std::make_shared<const Mixture>(Mixture{std::move(spec), sizes});
  std::vector<std::unique_ptr<Instruction>> all;
  all.push_back(std::make_unique<Sort>(m));
  all.push_back(std::make_unique<Gather>(m));
  all.push_back(std::make_unique<GateUp>(m));
  all.push_back(std::make_unique<Down>(m));
  all.push_back(std::make_unique<Combine>(m));
  return all;
}

}  // namespace octavo
