// Attention over the paged cache: cuts the step into tasks of one sequence, one KV head and a few
// adjacent query tokens, hands them out one by one, and quantizes what the next product reads.

#include <algorithm>

#include "runtime/instructions.h"

namespace octavo {
namespace {

struct Item {
  int32_t seq;
  int32_t token;  // first query row in the step
  int32_t num_tokens;
};

class Attend : public Instruction {
 public:
  explicit Attend(AttentionSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "attention"; }

  void prepare(RunContext& ctx) override {
    Instruction::prepare(ctx);
    items_.clear();
    const int32_t per_task = std::max(1, kTileRows / group(ctx));
    // The last pieces of a prompt are the longest: hand them out first.
    for (int32_t s = 0; s < ctx.step.num_seqs; ++s) {
      const int32_t begin = ctx.step.query_start[s], end = ctx.step.query_start[s + 1];
      for (int32_t t = begin + (end - begin - 1) / per_task * per_task; t >= begin; t -= per_task) {
        items_.push_back({s, t, std::min(per_task, end - t)});
      }
    }
  }

  void run(RunContext& ctx, int, ThreadScratch& scratch) override {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const int64_t total = static_cast<int64_t>(items_.size()) * layer.num_kv_heads;
    for (;;) {
      const int64_t i = take();
      if (i >= total) return;
      task(ctx, scratch, items_[i / layer.num_kv_heads],
           static_cast<int32_t>(i % layer.num_kv_heads));
    }
  }

 private:
  int32_t group(RunContext& ctx) const {
    return s_.q.count / ctx.kv->layers[s_.layer].num_kv_heads;
  }

  void task(RunContext& ctx, ThreadScratch& scratch, const Item& item, int32_t kv_head) {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const StepView& step = ctx.step;
    const int32_t g = group(ctx);
    const int64_t column = static_cast<int64_t>(kv_head) * g * layer.head_dim;
    const Buffer& q = ctx.buffer(s_.q.buffer);
    const int64_t width = static_cast<int64_t>(s_.q.count) * layer.head_dim;
    float* out;
    int64_t ldo;
    if (s_.out_f32 >= 0) {
      out = ctx.buffer(s_.out_f32).f32 + item.token * width + column;
      ldo = width;
    } else {
      out = scratch.tile;
      ldo = static_cast<int64_t>(g) * layer.head_dim;
    }
    const AttentionTask t = {
        q.f32 + item.token * q.width + s_.q.column + column,
        out,
        q.width,
        ldo,
        item.num_tokens,
        g,
        layer.head_dim,
        step.positions[item.token],
        step.block_table + static_cast<int64_t>(item.seq) * step.table_width,
        ctx.kv->data + layer.offset + static_cast<size_t>(kv_head) * layer.head_bytes,
        ctx.kv->block_bytes,
        s_.scale,
        s_.window,
        s_.softcap};
    ctx.kernels->attend(t, ctx.kv->type, scratch.attention);
    if (s_.out_q8 < 0) return;
    QuantizedRows& q8 = ctx.buffer(s_.out_q8).q8;
    for (int32_t r = 0; r < item.num_tokens; ++r) {
      quantize_groups(out + r * ldo - column, q8, item.token + r, column / kGroup,
                      (column + g * layer.head_dim) / kGroup);
    }
  }

  AttentionSpec s_;
  std::vector<Item> items_;
};

}  // namespace

std::unique_ptr<Instruction> make(AttentionSpec s) {
  return std::make_unique<Attend>(std::move(s));
}

}  // namespace octavo
