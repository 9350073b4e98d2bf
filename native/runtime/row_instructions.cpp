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

class Embed : public Instruction {
 public:
  explicit Embed(EmbedSpec spec) : s_(spec) {}
  const char* name() const override { return "embed"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    const PanelMatrix& table = (*ctx.matrices)[s_.matrix];
    Buffer& out = ctx.buffer(s_.out);
    const Span rows = split(ctx.step.num_tokens, 1, tid, ctx.pool->size());
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      float* row = out.f32 + t * out.width;
      unpack_row(table, ctx.step.tokens[t], row);
      if (s_.scale != 1.0f) ctx.kernels->scale(row, row, out.width, s_.scale);
    }
  }

 private:
  EmbedSpec s_;
};

class Norm : public Instruction {
 public:
  explicit Norm(NormSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "norm"; }
  void run(RunContext& ctx, int tid, ThreadScratch& scratch) override {
    const Buffer& in = ctx.buffer(s_.in);
    const int64_t run_length = static_cast<int64_t>(s_.weight.size());
    const Span rows = split(ctx.rows(s_.rows), 1, tid, ctx.pool->size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const float* x = in.f32 + r * in.width;
      float* y = s_.out_f32 >= 0 ? ctx.buffer(s_.out_f32).f32 + r * in.width : scratch.tile;
      for (int64_t c = 0; c < in.width; c += run_length) {
        ctx.kernels->rms_norm(x + c, s_.weight.data(), y + c, run_length, s_.eps, s_.offset);
      }
      if (s_.out_q8 >= 0) quantize_row(y, ctx.buffer(s_.out_q8), r);
    }
  }

 private:
  NormSpec s_;
};

class Quantize : public Instruction {
 public:
  explicit Quantize(QuantizeSpec spec) : s_(spec) {}
  const char* name() const override { return "quantize"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    const Span rows = split(ctx.rows(s_.rows), 1, tid, ctx.pool->size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      quantize_row(in.f32 + r * in.width, ctx.buffer(s_.out_q8), r);
    }
  }

 private:
  QuantizeSpec s_;
};

class Angles : public Instruction {
 public:
  explicit Angles(AnglesSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "angles"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    Buffer& out = ctx.buffer(s_.out);
    const int64_t half = static_cast<int64_t>(s_.inv_freq.size());
    const Span rows = split(ctx.step.num_tokens, 1, tid, ctx.pool->size());
    for (int64_t t = rows.begin; t < rows.end; ++t) {
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
};

class Heads : public Instruction {
 public:
  explicit Heads(HeadsSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "heads"; }

  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    // One item is one KV head of one token with its share of the query heads.
    const int64_t items_per_token = std::max<int64_t>(1, std::max(s_.k.count, s_.q.count));
    const Span items = split(ctx.step.num_tokens * items_per_token, 1, tid, ctx.pool->size());
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t t = i / items_per_token, h = i % items_per_token;
      const float* cs = nullptr;
      if (s_.angles >= 0) cs = ctx.buffer(s_.angles).f32 + t * ctx.buffer(s_.angles).width;
      if (h < s_.q.count) shape(ctx, head(ctx, s_.q, t, h), s_.q_norm, cs);
      if (h >= s_.k.count) continue;
      float* k = head(ctx, s_.k, t, h);
      shape(ctx, k, s_.k_norm, cs);
      if (s_.layer >= 0) write(ctx, t, h, k);
    }
  }

 private:
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

  void write(RunContext& ctx, int64_t t, int64_t h, const float* k) const {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const int32_t slot = ctx.step.slots[t];
    uint8_t* block = ctx.kv->data + static_cast<size_t>(slot / kBlockTokens) * ctx.kv->block_bytes +
                     layer.offset + static_cast<size_t>(h) * layer.head_bytes;
    ctx.kernels->kv_write(k, head(ctx, s_.v, t, h), block, s_.head_dim, slot % kBlockTokens,
                          ctx.kv->type);
  }

  HeadsSpec s_;
};

class ElementwiseRows : public Instruction {
 public:
  explicit ElementwiseRows(ElementwiseSpec spec) : s_(spec) {}
  const char* name() const override { return "elementwise"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    // Without a buffer it works in place on the logits (a soft cap after the head).
    const int64_t width = s_.out >= 0 ? ctx.buffer(s_.out).width : ctx.logits_width;
    const Span rows = split(ctx.rows(s_.rows), 1, tid, ctx.pool->size());
    const int64_t begin = rows.begin * width;
    const int64_t n = (rows.end - rows.begin) * width;
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
      case Elementwise::kSoftcap:
        return k.softcap(a, y, n, s_.value);
    }
  }

 private:
  ElementwiseSpec s_;
};

class Select : public Instruction {
 public:
  explicit Select(SelectSpec spec) : s_(spec) {}
  const char* name() const override { return "select"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    Buffer& out = ctx.buffer(s_.out);
    const Span rows = split(ctx.step.num_rows, 1, tid, ctx.pool->size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const float* x = in.f32 + ctx.step.logit_rows[r] * in.width;
      std::copy(x, x + in.width, out.f32 + r * out.width);
    }
  }

 private:
  SelectSpec s_;
};

class Output : public Instruction {
 public:
  explicit Output(OutputSpec spec) : s_(spec) {}
  const char* name() const override { return "output"; }
  void run(RunContext& ctx, int tid, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    const Span rows = split(ctx.rows(s_.rows), 1, tid, ctx.pool->size());
    std::copy(in.f32 + rows.begin * in.width, in.f32 + rows.end * in.width,
              ctx.logits + rows.begin * in.width);
  }

 private:
  OutputSpec s_;
};

}  // namespace

std::unique_ptr<Instruction> make(EmbedSpec s) {
  return std::make_unique<Embed>(s);
}
std::unique_ptr<Instruction> make(NormSpec s) {
  return std::make_unique<Norm>(std::move(s));
}
std::unique_ptr<Instruction> make(QuantizeSpec s) {
  return std::make_unique<Quantize>(s);
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
std::unique_ptr<Instruction> make(OutputSpec s) {
  return std::make_unique<Output>(s);
}

}  // namespace octavo
