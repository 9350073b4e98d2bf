// Instructions that work row by row: embedding, norms, quantization, rotation, elementwise.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/instructions.h"

namespace octavo {
namespace {

// Quantizes one finished float row.
void quantize_row(const float* x, Buffer& out, int64_t row) {
  quantize_groups(x, out.q8, row, 0, (out.width + kGroup - 1) / kGroup);
}

// Sums in sixteen lanes, so that the compiler may use vectors and the order is fixed all the same.
constexpr int kLanes = 16;

float lane_sum(const float (&lanes)[kLanes]) {
  float total = 0.0f;
  for (float lane : lanes) total += lane;
  return total;
}

void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t n,
                float eps) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, n - i);
    for (int64_t j = 0; j < count; ++j) lanes[j] += x[i + j];
  }
  const float mean = lane_sum(lanes) / static_cast<float>(n);
  float squares[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, n - i);
    for (int64_t j = 0; j < count; ++j) squares[j] += (x[i + j] - mean) * (x[i + j] - mean);
  }
  const float scale = 1.0f / std::sqrt(lane_sum(squares) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i];
  if (bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
  }
}

void relu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::max(x[i], 0.0f);
}

class Embed : public Instruction {
 public:
  explicit Embed(EmbedSpec spec) : s_(spec) {}
  const char* name() const override { return "embed"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.step.num_tokens, ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const PanelMatrix& table = (*ctx.matrices)[s_.matrix];
    Buffer& out = ctx.buffer(s_.out);
    for (int64_t t = items_.begin(item); t < items_.end(item); ++t) {
      float* row = out.f32 + t * out.width;
      unpack_row(table, id(ctx.step, t), row);
      if (s_.scale != 1.0f) ctx.kernels->scale(row, row, out.width, s_.scale);
    }
  }

 private:
  int32_t id(const StepView& step, int64_t t) const {
    if (s_.by == EmbedBy::kTokens) return step.tokens[t];
    if (s_.by == EmbedBy::kPositions) return step.positions[t] + s_.offset;
    return step.types == nullptr ? 0 : step.types[t];
  }

  EmbedSpec s_;
  RowItems items_;
};

class Norm : public Instruction {
 public:
  explicit Norm(NormSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "norm"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Buffer& in = ctx.buffer(s_.in);
    const int64_t run_length = static_cast<int64_t>(s_.weight.size());
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      const float* x = in.f32 + r * in.width;
      float* y = s_.out_f32 >= 0 ? ctx.buffer(s_.out_f32).f32 + r * in.width : scratch.tile;
      if (s_.centred) {
        layer_norm(x, s_.weight.data(), s_.bias.empty() ? nullptr : s_.bias.data(), y, in.width,
                   s_.eps);
      } else {
        for (int64_t c = 0; c < in.width; c += run_length) {
          ctx.kernels->rms_norm(x + c, s_.weight.data(), y + c, run_length, s_.eps, s_.offset);
        }
      }
      if (s_.out_q8 >= 0) quantize_row(y, ctx.buffer(s_.out_q8), r);
    }
  }

 private:
  NormSpec s_;
  RowItems items_;
};

class Quantize : public Instruction {
 public:
  explicit Quantize(QuantizeSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "quantize"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Buffer& in = ctx.buffer(s_.in);
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      const float* x = in.f32 + r * in.width;
      for (size_t i = 0; i < s_.order.size(); ++i) scratch.tile[i] = x[s_.order[i]];
      quantize_row(s_.order.empty() ? x : scratch.tile, ctx.buffer(s_.out_q8), r);
    }
  }

 private:
  QuantizeSpec s_;
  RowItems items_;
};

class Angles : public Instruction {
 public:
  explicit Angles(AnglesSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "angles"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.step.num_tokens, ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    Buffer& out = ctx.buffer(s_.out);
    const int64_t half = static_cast<int64_t>(s_.inv_freq.size());
    for (int64_t t = items_.begin(item); t < items_.end(item); ++t) {
      float* row = out.f32 + t * out.width;
      const float position = static_cast<float>(ctx.step.positions[t]);
      for (int64_t i = 0; i < half; ++i) {
        // The angle is rounded to float first, as the models were trained.
        const double angle = position * s_.inv_freq[i];
        row[i] = static_cast<float>(std::cos(angle)) * s_.magnitude;
        row[half + i] = static_cast<float>(std::sin(angle)) * s_.magnitude;
      }
    }
  }

 private:
  AnglesSpec s_;
  RowItems items_;
};

class Heads : public Instruction {
 public:
  explicit Heads(HeadsSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "heads"; }

  int64_t prepare(RunContext& ctx) override {
    find_runs(ctx);
    return items_.cut((static_cast<int64_t>(runs_.size()) - 1) * per_token(), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    // One piece of work is one KV head of one run with its share of the query heads.
    for (int64_t i = items_.begin(item); i < items_.end(item); ++i) {
      const int64_t r = i / per_token(), h = i % per_token();
      for (int64_t t = runs_[r]; t < runs_[r + 1]; ++t) token(ctx, t, h);
      if (h < s_.k.count && s_.layer >= 0) write(ctx, runs_[r], runs_[r + 1], h);
    }
  }

 private:
  void token(RunContext& ctx, int64_t t, int64_t h) const {
    const float* cs = nullptr;
    if (s_.angles >= 0) cs = ctx.buffer(s_.angles).f32 + t * ctx.buffer(s_.angles).width;
    if (h < s_.q.count) shape(ctx, head(ctx, s_.q, t, h), s_.q_norm, cs);
    if (h < s_.k.count) shape(ctx, head(ctx, s_.k, t, h), s_.k_norm, cs);
  }

  // Runs of tokens that are adjacent in a block of the cache, written together: an int4 cache
  // writes a key by the first one of its block. Without a cache every token is one.
  void find_runs(const RunContext& ctx) {
    runs_.clear();
    const int32_t* slots = ctx.step.slots;
    for (int32_t t = 0; t < ctx.step.num_tokens; ++t) {
      const bool follows =
          s_.layer >= 0 && t > 0 && slots[t] == slots[t - 1] + 1 && slots[t] % kBlockTokens != 0;
      if (!follows) runs_.push_back(t);
    }
    runs_.push_back(ctx.step.num_tokens);
  }

  int64_t per_token() const { return std::max<int64_t>(1, std::max(s_.k.count, s_.q.count)); }

  float* head(RunContext& ctx, const HeadsRef& ref, int64_t t, int64_t h) const {
    Buffer& b = ctx.buffer(ref.buffer);
    return b.f32 + t * b.width + ref.column + h * s_.head_dim;
  }

  void shape(RunContext& ctx, float* x, const std::vector<float>& norm, const float* cs) const {
    if (!norm.empty()) {
      ctx.kernels->rms_norm(x, norm.data(), x, s_.head_dim, s_.eps, s_.norm_offset);
    }
    if (cs != nullptr) ctx.kernels->rope(x, cs, s_.half, s_.interleaved);
  }

  void write(RunContext& ctx, int64_t begin, int64_t end, int64_t h) const {
    const int32_t slot = ctx.step.slots[begin];
    uint8_t* block = ctx.kv->blocks(s_.layer, h).at(slot / kBlockTokens);
    const KvRows rows{head(ctx, s_.k, begin, h), head(ctx, s_.v, begin, h),
                      ctx.buffer(s_.k.buffer).width, ctx.buffer(s_.v.buffer).width,
                      static_cast<int32_t>(end - begin)};
    ctx.kernels->kv_write(rows, block, s_.head_dim, slot % kBlockTokens, ctx.kv->type);
  }

  HeadsSpec s_;
  RowItems items_;
  std::vector<int32_t> runs_;  // where each begins, and the end of the last
};

class ElementwiseRows : public Instruction {
 public:
  explicit ElementwiseRows(ElementwiseSpec spec) : s_(spec) {}
  const char* name() const override { return "elementwise"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    // Without a buffer it works in place on the logits (a soft cap after the head).
    const int64_t width = s_.out >= 0 ? ctx.buffer(s_.out).width : ctx.logits_width;
    const int64_t begin = items_.begin(item) * width;
    const int64_t n = (items_.end(item) - items_.begin(item)) * width;
    if (n <= 0) return;
    const float* a = (s_.a >= 0 ? ctx.buffer(s_.a).f32 : ctx.logits) + begin;
    float* y = (s_.out >= 0 ? ctx.buffer(s_.out).f32 : ctx.logits) + begin;
    const RuntimeKernels& k = *ctx.kernels;
    switch (s_.kind) {
      case Elementwise::kAdd:
        return k.add(a, ctx.buffer(s_.b).f32 + begin, y, n);
      case Elementwise::kMul:
        return k.mul(a, ctx.buffer(s_.b).f32 + begin, y, n);
      case Elementwise::kScale:
        return k.scale(a, y, n, s_.value);
      case Elementwise::kSilu:
        return k.silu(a, y, n);
      case Elementwise::kGelu:
        return k.gelu(a, y, n);
      case Elementwise::kGeluErf:
        return k.gelu_erf(a, y, n);
      case Elementwise::kRelu:
        return relu(a, y, n);
      case Elementwise::kTanh:
        return k.tanh(a, y, n);
      case Elementwise::kSoftcap:
        return k.softcap(a, y, n, s_.value);
    }
  }

 private:
  ElementwiseSpec s_;
  RowItems items_;
};

class Select : public Instruction {
 public:
  explicit Select(SelectSpec spec) : s_(spec) {}
  const char* name() const override { return "select"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.step.num_rows, ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    Buffer& out = ctx.buffer(s_.out);
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      const float* x = in.f32 + ctx.step.logit_rows[r] * in.width;
      std::copy(x, x + in.width, out.f32 + r * out.width);
    }
  }

 private:
  SelectSpec s_;
  RowItems items_;
};

class Mean : public Instruction {
 public:
  explicit Mean(MeanSpec spec) : s_(spec) {}
  const char* name() const override { return "mean"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.step.num_rows, ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    Buffer& out = ctx.buffer(s_.out);
    const int32_t *starts = ctx.step.query_start, *last = starts + ctx.step.num_seqs;
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      const int32_t* next = std::upper_bound(starts, last, ctx.step.logit_rows[r]);
      const int64_t begin = next[-1], end = *next;
      float* y = out.f32 + r * out.width;
      std::copy_n(in.f32 + begin * in.width, in.width, y);
      for (int64_t t = begin + 1; t < end; ++t) {
        ctx.kernels->add(y, in.f32 + t * in.width, y, in.width);
      }
      ctx.kernels->scale(y, y, in.width, 1.0f / static_cast<float>(end - begin));
    }
  }

 private:
  MeanSpec s_;
  RowItems items_;
};

class Output : public Instruction {
 public:
  explicit Output(OutputSpec spec) : s_(spec) {}
  const char* name() const override { return "output"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    std::copy(in.f32 + items_.begin(item) * in.width, in.f32 + items_.end(item) * in.width,
              ctx.logits + items_.begin(item) * in.width);
  }

 private:
  OutputSpec s_;
  RowItems items_;
};

}  // namespace

std::unique_ptr<Instruction> make(EmbedSpec s) {
  return std::make_unique<Embed>(s);
}
std::unique_ptr<Instruction> make(NormSpec s) {
  return std::make_unique<Norm>(std::move(s));
}
std::unique_ptr<Instruction> make(QuantizeSpec s) {
  return std::make_unique<Quantize>(std::move(s));
}
std::unique_ptr<Instruction> make(AnglesSpec s) {
  return std::make_unique<Angles>(std::move(s));
}
std::unique_ptr<Instruction> make(HeadsSpec s) {
  return std::make_unique<Heads>(std::move(s));
}
std::unique_ptr<Instruction> make(ElementwiseSpec s) {
  return std::make_unique<ElementwiseRows>(s);
}
std::unique_ptr<Instruction> make(SelectSpec s) {
  return std::make_unique<Select>(s);
}
std::unique_ptr<Instruction> make(MeanSpec s) {
  return std::make_unique<Mean>(s);
}
std::unique_ptr<Instruction> make(OutputSpec s) {
  return std::make_unique<Output>(s);
}

}  // namespace octavo
