// Attention over the paged cache: cuts the step into tasks of one sequence, one KV head and a few
// adjacent query tokens, hands them out one by one, and quantizes what the next product reads.

#include <algorithm>
#include <atomic>

#include "runtime/instructions.h"

namespace octavo {
namespace {

struct Piece {
  int32_t seq;
  int32_t token;  // first query row in the step
  int32_t num_tokens;
};

// Chunks [first, first + count) of keys that a piece sees; partials of one KV head lie together.
struct Chunks {
  int32_t first;
  int32_t count;
  size_t partial;  // offset of KV head 0 in partials_, in floats
};

// Below this many items a thread, long contexts are cut into their chunks.
constexpr int64_t kItemsPerThread = 4;

class Attend : public Instruction {
 public:
  explicit Attend(AttentionSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "attention"; }

  int64_t prepare(RunContext& ctx) override {
    pieces_.clear();
    const int32_t per_piece = std::max(1, kTileRows / group(ctx));
    // The last pieces of a prompt are the longest: hand them out first.
    for (int32_t s = 0; s < ctx.step.num_seqs; ++s) {
      const int32_t begin = ctx.step.query_start[s], end = ctx.step.query_start[s + 1];
      int32_t t = begin + (end - begin - 1) / per_piece * per_piece;
      for (; t >= begin; t -= per_piece) pieces_.push_back({s, t, std::min(per_piece, end - t)});
    }
    cut_into_chunks(ctx);
    const int64_t heads = ctx.kv->layers[s_.layer].num_kv_heads;
    return static_cast<int64_t>(chunks_.empty() ? pieces_.size() * heads : jobs_.size());
  }

  const uint8_t* warm(const RunContext& ctx, int tid) const override {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const int64_t items = static_cast<int64_t>(pieces_.size()) * layer.num_kv_heads;
    if (items == 0 || !chunks_.empty()) return nullptr;
    const int64_t item = items * tid / ctx.pool->size();
    const Piece& piece = pieces_[item / layer.num_kv_heads];
    const int32_t position = ctx.step.positions[piece.token];
    const int32_t first = s_.window > 0 ? std::max(0, position - s_.window + 1) / kBlockTokens : 0;
    const int32_t* table =
        ctx.step.block_table + static_cast<int64_t>(piece.seq) * ctx.step.table_width;
    return ctx.kv->data + ctx.kv->block_bytes * table[first] + layer.offset +
           layer.head_bytes * (item % layer.num_kv_heads);
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const int64_t heads = ctx.kv->layers[s_.layer].num_kv_heads;
    if (!chunks_.empty()) return run_chunk(ctx, jobs_[item], scratch, heads);
    const Piece& piece = pieces_[item / heads];
    const AttentionTask t = task(ctx, scratch, piece, item % heads);
    ctx.kernels->attend(t, ctx.kv->type, scratch.attention);
    finish(ctx, t, piece, item % heads);
  }

 private:
  struct Job {
    int32_t piece;
    int32_t kv_head;
    int32_t chunk;
  };

  int32_t group(RunContext& ctx) const {
    return s_.q.count / ctx.kv->layers[s_.layer].num_kv_heads;
  }

  // With few sequences and long contexts, one thread would work through all keys of a head while
  // others idle. Results do not depend on the cut.
  void cut_into_chunks(RunContext& ctx) {
    chunks_.clear();
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const int64_t items = static_cast<int64_t>(pieces_.size()) * layer.num_kv_heads;
    if (ctx.pool->size() == 1 || items >= kItemsPerThread * ctx.pool->size()) return;
    constexpr int32_t kChunkTokens = kChunkBlocks * kBlockTokens;
    size_t floats = 0, most = 0;
    for (const Piece& p : pieces_) {
      const int32_t position = ctx.step.positions[p.token];
      const int32_t begin = s_.window > 0 ? std::max(0, position - s_.window + 1) : 0;
      const int32_t first = begin / kChunkTokens;
      const int32_t last = (position + p.num_tokens - 1) / kChunkTokens;
      chunks_.push_back({first, last - first + 1, floats});
      const int64_t rows = static_cast<int64_t>(p.num_tokens) * group(ctx);
      floats += partial_floats(rows, layer.head_dim) * (last - first + 1) * layer.num_kv_heads;
      most = std::max(most, static_cast<size_t>(last - first + 1));
    }
    if (most < 2) return chunks_.clear();
    if (partials_.size() < floats) partials_.resize(floats);
    const size_t heads = static_cast<size_t>(layer.num_kv_heads);
    if (left_.size() < pieces_.size() * heads) {
      left_ = std::vector<std::atomic<int32_t>>(pieces_.size() * heads);
    }
    jobs_.clear();
    for (size_t p = 0; p < pieces_.size(); ++p) {
      for (size_t h = 0; h < heads; ++h) {
        left_[p * heads + h].store(chunks_[p].count, std::memory_order_relaxed);
        for (int32_t c = 0; c < chunks_[p].count; ++c) {
          jobs_.push_back({static_cast<int32_t>(p), static_cast<int32_t>(h), c});
        }
      }
    }
  }

  // Whoever finishes the last chunk of a head merges them all, in order.
  void run_chunk(RunContext& ctx, const Job& job, ThreadScratch& scratch, int64_t heads) {
    const Piece& piece = pieces_[job.piece];
    const Chunks& chunks = chunks_[job.piece];
    const AttentionTask t = task(ctx, scratch, piece, job.kv_head);
    const size_t floats = partial_floats(static_cast<int64_t>(t.num_tokens) * t.group, t.head_dim);
    float* partials = partials_.data() + chunks.partial + floats * chunks.count * job.kv_head;
    ctx.kernels->attend_chunk(t, ctx.kv->type, scratch.attention, chunks.first + job.chunk,
                              partials + floats * job.chunk);
    std::atomic<int32_t>& left = left_[job.piece * heads + job.kv_head];
    if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    ctx.kernels->attend_merge(t, ctx.kv->type, scratch.attention, partials);
    finish(ctx, t, piece, job.kv_head);
  }

  AttentionTask task(RunContext& ctx, ThreadScratch& scratch, const Piece& piece,
                     int64_t kv_head) const {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const StepView& step = ctx.step;
    const int32_t g = group(ctx);
    const int64_t column = kv_head * g * layer.head_dim;
    const Buffer& q = ctx.buffer(s_.q.buffer);
    const int64_t width = static_cast<int64_t>(s_.q.count) * layer.head_dim;
    AttentionTask t;
    t.q = q.f32 + piece.token * q.width + s_.q.column + column;
    t.ldq = q.width;
    // Without a float result, rows stay in the thread's tile until they are quantized.
    const bool to_buffer = s_.out_f32 >= 0;
    t.out = to_buffer ? ctx.buffer(s_.out_f32).f32 + piece.token * width + column : scratch.tile;
    t.ldo = to_buffer ? width : static_cast<int64_t>(g) * layer.head_dim;
    t.num_tokens = piece.num_tokens;
    t.group = g;
    t.head_dim = layer.head_dim;
    t.first_position = step.positions[piece.token];
    t.blocks = step.block_table + static_cast<int64_t>(piece.seq) * step.table_width;
    t.kv = ctx.kv->data + layer.offset + static_cast<size_t>(kv_head) * layer.head_bytes;
    t.block_stride = ctx.kv->block_bytes;
    t.scale = s_.scale;
    t.window = s_.window;
    t.softcap = s_.softcap;
    return t;
  }

  void finish(RunContext& ctx, const AttentionTask& t, const Piece& piece, int64_t kv_head) {
    if (s_.out_q8 < 0) return;
    QuantizedRows& q8 = ctx.buffer(s_.out_q8).q8;
    const int64_t width = static_cast<int64_t>(t.group) * t.head_dim;
    const int64_t column = kv_head * width;
    for (int32_t r = 0; r < t.num_tokens; ++r) {
      quantize_groups(t.out + r * t.ldo - column, q8, piece.token + r, column / kGroup,
                      (column + width) / kGroup);
    }
  }

  AttentionSpec s_;
  std::vector<Piece> pieces_;
  std::vector<Chunks> chunks_;  // by piece; empty: not cut
  std::vector<Job> jobs_;
  std::vector<std::atomic<int32_t>> left_;  // [piece][kv head] chunks not done
  std::vector<float> partials_;
};

}  // namespace

std::unique_ptr<Instruction> make(AttentionSpec s) {
  return std::make_unique<Attend>(std::move(s));
}

}  // namespace octavo
