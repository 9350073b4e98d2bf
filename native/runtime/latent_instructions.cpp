// The paged cache of latents: writing a token's row, and attention over rows.
//
// All query heads read the same rows. So a task takes as many heads of a token as fit, and then as
// many tokens; with few tasks, each is cut into chunks of keys that any thread may take.

#include <algorithm>
#include <atomic>

#include "runtime/instructions.h"

namespace octavo {
namespace {

class LatentWrite : public Instruction {
 public:
  explicit LatentWrite(LatentWriteSpec spec) : s_(spec) {}
  const char* name() const override { return "latent_write"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.step.num_tokens, ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const KvMemory::Layer& layer = ctx.kv->layers[s_.layer];
    const Buffer& latent = ctx.buffer(s_.latent);
    const Buffer& key = ctx.buffer(s_.key);
    for (int64_t t = items_.begin(item); t < items_.end(item); ++t) {
      const int32_t slot = ctx.step.slots[t];
      uint8_t* block = ctx.kv->blocks(s_.layer, 0).at(slot / kBlockTokens);
      ctx.kernels->latent_write(latent.f32 + t * latent.width, key.f32 + t * key.width, block,
                                layer.latent_dim, layer.head_dim - layer.latent_dim,
                                slot % kBlockTokens, ctx.kv->type);
    }
  }

 private:
  LatentWriteSpec s_;
  RowItems items_;
};

// Adjacent tokens of one sequence and adjacent query heads.
struct Task {
  int32_t seq;
  int32_t token;  // first query row in the step
  int32_t num_tokens;
  int32_t first_head;
  int32_t num_chunks;
  size_t partial;  // offset of chunk 0 in partials_, in floats
};

// One chunk of a task's keys, or all.
struct Job {
  static constexpr int32_t kAllChunks = -1;
  int32_t task;
  int32_t chunk;
};

constexpr int64_t kJobsPerThread = 4;  // below this many, tasks are cut into chunks

class LatentAttend : public Instruction {
 public:
  explicit LatentAttend(LatentAttentionSpec spec) : s_(spec) {}
  const char* name() const override { return "latent_attention"; }

  int64_t prepare(RunContext& ctx) override {
    find_tasks(ctx);
    const int64_t enough = kJobsPerThread * ctx.pool->size();
    const bool few = ctx.pool->size() > 1 && static_cast<int64_t>(tasks_.size()) < enough;
    jobs_.clear();
    size_t floats = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      Task& task = tasks_[i];
      task.partial = floats;
      const int32_t index = static_cast<int32_t>(i);
      if (!few || task.num_chunks == 1) {
        jobs_.push_back({index, Job::kAllChunks});
        continue;
      }
      for (int32_t c = 0; c < task.num_chunks; ++c) jobs_.push_back({index, c});
      floats += partial_size(ctx, task) * task.num_chunks;
    }
    if (partials_.size() < floats) partials_.resize(floats);
    if (left_.size() < tasks_.size()) left_ = std::vector<std::atomic<int32_t>>(tasks_.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      left_[i].store(tasks_[i].num_chunks, std::memory_order_relaxed);
    }
    return static_cast<int64_t>(jobs_.size());
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Job& job = jobs_[item];
    const Task& task = tasks_[job.task];
    const AttentionTask t = attention_task(ctx, task);
    const KvType type = ctx.kv->type;
    if (job.chunk == Job::kAllChunks) return ctx.kernels->attend(t, type, scratch.attention);
    const size_t floats = partial_size(ctx, task);
    float* partials = partials_.data() + task.partial;
    ctx.kernels->attend_chunk(t, type, scratch.attention, job.chunk, partials + floats * job.chunk);
    if (left_[job.task].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    ctx.kernels->attend_merge(t, type, scratch.attention, partials);
  }

 private:
  const KvMemory::Layer& layer(const RunContext& ctx) const { return ctx.kv->layers[s_.layer]; }

  // Query heads of a task: all, or an equal share of them.
  int32_t heads_per_task() const {
    for (int32_t parts = 1;; ++parts) {
      if (s_.num_heads % parts == 0 && s_.num_heads / parts <= kTileRows) {
        return s_.num_heads / parts;
      }
    }
  }
  size_t partial_size(const RunContext& ctx, const Task& task) const {
    const int64_t rows = static_cast<int64_t>(task.num_tokens) * heads_per_task();
    return partial_floats(rows, layer(ctx).head_dim);
  }

  void find_tasks(const RunContext& ctx) {
    tasks_.clear();
    const int32_t heads = heads_per_task(), most = std::max(1, kTileRows / heads);
    // The last tokens of a prompt see the most: they are handed out first.
    for (int32_t s = 0; s < ctx.step.num_seqs; ++s) {
      const int32_t begin = ctx.step.query_start[s], end = ctx.step.query_start[s + 1];
      for (int32_t t = begin + (end - begin - 1) / most * most; t >= begin; t -= most) {
        const int32_t tokens = std::min(most, end - t);
        const int32_t last = ctx.step.positions[t] + tokens - 1;
        const int32_t chunks = last / (kBlockTokens * kChunkBlocks) + 1;
        for (int32_t h = 0; h < s_.num_heads; h += heads) {
          tasks_.push_back({s, t, tokens, h, chunks, 0});
        }
      }
    }
  }

  AttentionTask attention_task(RunContext& ctx, const Task& task) const {
    const KvMemory::Layer& kv = layer(ctx);
    const Buffer& q = ctx.buffer(s_.q);
    const Buffer& q_rope = ctx.buffer(s_.q_rope);
    Buffer& out = ctx.buffer(s_.out);
    const int64_t rope_dim = kv.head_dim - kv.latent_dim;
    AttentionTask t{};
    t.q = q.f32 + task.token * q.width + task.first_head * kv.latent_dim;
    t.ldq = q.width;
    t.q_rope = q_rope.f32 + task.token * q_rope.width + task.first_head * rope_dim;
    t.ldq_rope = q_rope.width;
    t.out = out.f32 + task.token * out.width + task.first_head * kv.latent_dim;
    t.ldo = out.width;
    t.num_tokens = task.num_tokens;
    t.group = heads_per_task();
    t.head_dim = kv.head_dim;
    t.latent_dim = kv.latent_dim;
    t.first_position = ctx.step.positions[task.token];
    t.blocks = ctx.step.block_table + static_cast<int64_t>(task.seq) * ctx.step.table_width;
    t.kv = ctx.kv->blocks(s_.layer, 0);
    t.scale = s_.scale;
    return t;
  }

  LatentAttentionSpec s_;
  std::vector<Task> tasks_;
  std::vector<Job> jobs_;
  std::vector<std::atomic<int32_t>> left_;  // chunks not done, one a task
  std::vector<float> partials_;
};

}  // namespace

std::unique_ptr<Instruction> make(LatentWriteSpec s) {
  return std::make_unique<LatentWrite>(s);
}
std::unique_ptr<Instruction> make(LatentAttentionSpec s) {
  return std::make_unique<LatentAttend>(s);
}

}  // namespace octavo
