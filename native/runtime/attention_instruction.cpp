// Attention over the paged cache: cuts the step into pieces of one sequence and a few adjacent
// query tokens, hands out jobs of them, and quantizes what the next product reads.
//
// A piece of few rows reads much and computes little. Its jobs are cut as memory likes it: all KV
// heads of a chunk together, since they lie together in a block, and while one job is computed the
// next job's keys and values are asked for, in the order of memory.

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "runtime/instructions.h"

namespace octavo {
namespace {

struct Piece {
  int32_t seq;
  int32_t token;  // first query row in the step
  int32_t num_tokens;
  int32_t first_chunk;  // of the keys that it sees
  int32_t num_chunks;
  size_t partial;  // offset of KV head 0's chunk 0 in partials_, in floats
};

// Some KV heads of one piece, in one chunk or in all.
struct Job {
  static constexpr int32_t kAllChunks = -1;
  int32_t piece;
  int32_t first_head;
  int32_t num_heads;
  int32_t chunk;
};

// Up to here a task's time is that of reading keys and values, and not of multiplying them.
constexpr int32_t kStreamRows = 12;
// Keys and values of one job of those: half of a core's second-level cache, since the next job's
// come in meanwhile.
constexpr size_t kStreamBytes = 256 << 10;
// Below this many a thread, jobs are made smaller.
constexpr int64_t kJobsPerThread = 4;

class Attend : public Instruction {
 public:
  explicit Attend(AttentionSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "attention"; }

  int64_t prepare(RunContext& ctx) override {
    find_pieces(ctx);
    const int64_t heads = layer(ctx).num_kv_heads;
    // Few pieces: cut as finely as can be, so that every thread gets some.
    const int64_t enough = kJobsPerThread * ctx.pool->size();
    const bool few_pieces =
        ctx.pool->size() > 1 && static_cast<int64_t>(pieces_.size()) * heads < enough;
    int64_t chunks = 0;
    for (const Piece& p : pieces_) chunks += p.num_chunks;
    jobs_.clear();
    size_t floats = 0;
    for (size_t p = 0; p < pieces_.size();) {
      Piece& piece = pieces_[p];
      piece.partial = floats;
      const bool stream = streams(ctx, piece);
      const bool in_chunks = piece.num_chunks > 1 && (few_pieces || stream);
      if (!in_chunks && !stream) {
        p = add_prompt(ctx, p, few_pieces);
        continue;
      }
      add_jobs(ctx, static_cast<int32_t>(p), in_chunks, stream && chunks >= enough);
      if (in_chunks) floats += partial_size(ctx, piece) * piece.num_chunks * heads;
      ++p;
    }
    if (partials_.size() < floats) partials_.resize(floats);
    count_chunks(heads);
    return static_cast<int64_t>(jobs_.size());
  }

  const uint8_t* warm(const RunContext& ctx, int tid) const override {
    if (jobs_.empty()) return nullptr;
    const Job& job = jobs_[jobs_.size() * tid / ctx.pool->size()];
    const Blocks blocks = blocks_of(ctx, job);
    return head_at(ctx, pieces_[job.piece], blocks.begin, job.first_head);
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Job& job = jobs_[item];
    const Piece& piece = pieces_[job.piece];
    const Blocks blocks = blocks_of(ctx, job);
    const bool more = follows(item, static_cast<int64_t>(jobs_.size()), ctx.pool->size());
    const Job* next = more ? &jobs_[item + 1] : nullptr;
    std::optional<Halves> ahead;
    if (next != nullptr && streams(ctx, pieces_[next->piece])) ahead.emplace(*this, ctx, *next);
    const int32_t first = job.chunk == Job::kAllChunks ? blocks_of(ctx, piece).begin : blocks.begin;
    for (int32_t i = 0; i < job.num_heads; ++i) {
      AttentionTask t = task(ctx, scratch, piece, job.first_head + i);
      const uint8_t* pieces[2 * kChunkBlocks + kPiecesBehind] = {};
      const uint8_t** behind = pieces + 2 * kChunkBlocks;
      if (ahead) {
        for (int32_t n = 0; n < 2 * blocks.count(); ++n) pieces[n] = ahead->next();
      }
      if (i + 1 < job.num_heads) {
        first_keys(ctx, piece, {first, blocks.end}, job.first_head + i + 1, behind);
      } else if (ahead) {
        first_keys(ctx, pieces_[next->piece], blocks_of(ctx, *next), next->first_head, behind);
      }
      if (streams(ctx, piece)) t.ahead = pieces;
      run_head(ctx, job, job.first_head + i, t, scratch);
    }
    if (ahead) ahead->ask_for_rest();
  }

 private:
  struct Blocks {
    int32_t begin;
    int32_t end;
    int32_t count() const { return end - begin; }
  };

  const KvMemory::Layer& layer(const RunContext& ctx) const { return ctx.kv->layers[s_.layer]; }
  int32_t group(const RunContext& ctx) const { return s_.q.count / layer(ctx).num_kv_heads; }
  bool streams(const RunContext& ctx, const Piece& p) const {
    return p.num_tokens * group(ctx) <= kStreamRows;
  }
  size_t partial_size(const RunContext& ctx, const Piece& p) const {
    return partial_floats(static_cast<int64_t>(p.num_tokens) * group(ctx), layer(ctx).head_dim);
  }

  void find_pieces(RunContext& ctx) {
    pieces_.clear();
    const int32_t per_piece = std::max(1, kTileRows / group(ctx));
    // The last pieces of a prompt are the longest: hand them out first.
    for (int32_t s = 0; s < ctx.step.num_seqs; ++s) {
      const int32_t begin = ctx.step.query_start[s], end = ctx.step.query_start[s + 1];
      int32_t t = begin + (end - begin - 1) / per_piece * per_piece;
      for (; t >= begin; t -= per_piece) {
        Piece piece{s, t, std::min(per_piece, end - t), 0, 0, 0};
        const Blocks all = blocks_of(ctx, piece);
        piece.first_chunk = all.begin / kChunkBlocks;
        piece.num_chunks = (all.end - 1) / kChunkBlocks + 1 - piece.first_chunk;
        pieces_.push_back(piece);
      }
    }
  }

  void add_jobs(RunContext& ctx, int32_t p, bool in_chunks, bool many_heads) {
    const Piece& piece = pieces_[p];
    const int32_t heads = layer(ctx).num_kv_heads;
    const int32_t fit = static_cast<int32_t>(kStreamBytes / kChunkBlocks / layer(ctx).head_bytes);
    const int32_t step = many_heads ? std::clamp(fit, 1, heads) : 1;
    for (int32_t c = 0; c < (in_chunks ? piece.num_chunks : 1); ++c) {
      for (int32_t h = 0; h < heads; h += step) {
        jobs_.push_back({p, h, std::min(step, heads - h), in_chunks ? c : Job::kAllChunks});
      }
    }
  }

  // Jobs of the pieces of a prompt from p on, each for all chunks of a head; returns the first
  // piece behind them. Head by head: the keys and values of one may stay in the second-level cache.
  size_t add_prompt(const RunContext& ctx, size_t p, bool few_pieces) {
    const auto goes_on = [&](const Piece& piece) {
      return piece.seq == pieces_[p].seq && !streams(ctx, piece) &&
             (piece.num_chunks == 1 || !few_pieces);
    };
    size_t end = p + 1;
    while (end < pieces_.size() && goes_on(pieces_[end])) ++end;
    for (int32_t h = 0; h < layer(ctx).num_kv_heads; ++h) {
      for (size_t i = p; i < end; ++i) {
        jobs_.push_back({static_cast<int32_t>(i), h, 1, Job::kAllChunks});
      }
    }
    return end;
  }

  void count_chunks(int64_t heads) {
    if (left_.size() < pieces_.size() * heads) {
      left_ = std::vector<std::atomic<int32_t>>(pieces_.size() * heads);
    }
    for (size_t i = 0; i < pieces_.size() * heads; ++i) {
      left_[i].store(pieces_[i / heads].num_chunks, std::memory_order_relaxed);
    }
  }

  // Blocks that a piece sees.
  Blocks blocks_of(const RunContext& ctx, const Piece& p) const {
    const int32_t position = ctx.step.positions[p.token];
    const int32_t begin = s_.window > 0 ? std::max(0, position - s_.window + 1) : 0;
    int32_t end = position + p.num_tokens;
    if (!s_.causal) {
      const int32_t length = ctx.step.seq_len[p.seq];
      end = s_.window > 0 ? std::min(end + s_.window - 1, length) : length;
    }
    return {begin / kBlockTokens, (end - 1) / kBlockTokens + 1};
  }
  // Those of a job; of all chunks, the last.
  Blocks blocks_of(const RunContext& ctx, const Job& job) const {
    const Piece& piece = pieces_[job.piece];
    const Blocks all = blocks_of(ctx, piece);
    const int32_t c =
        piece.first_chunk + (job.chunk == Job::kAllChunks ? piece.num_chunks - 1 : job.chunk);
    return {std::max(all.begin, c * kChunkBlocks), std::min(all.end, (c + 1) * kChunkBlocks)};
  }

  const uint8_t* head_at(const RunContext& ctx, const Piece& piece, int32_t block,
                         int32_t head) const {
    const int64_t row = static_cast<int64_t>(piece.seq) * ctx.step.table_width;
    return ctx.kv->blocks(s_.layer, head).at(ctx.step.block_table[row + block]);
  }

  // The keys of a head in the first of these blocks.
  void first_keys(const RunContext& ctx, const Piece& piece, Blocks blocks, int32_t head,
                  const uint8_t** pieces) const {
    for (int32_t i = 0; i < std::min(kPiecesBehind, blocks.count()); ++i) {
      pieces[i] = head_at(ctx, piece, blocks.begin + i, head);
    }
  }

  // The halves of a job's heads in the order of memory: block by block, and in it head by head.
  class Halves {
   public:
    Halves(const Attend& attend, const RunContext& ctx, const Job& job)
        : attend_(attend),
          ctx_(ctx),
          job_(job),
          piece_(attend.pieces_[job.piece]),
          blocks_(attend.blocks_of(ctx, job)),
          bytes_(attend.layer(ctx).head_bytes / 2) {}

    // Null: there are no more.
    const uint8_t* next() {
      if (at_ == end_) {
        if (blocks_.begin == blocks_.end) return nullptr;
        at_ = attend_.head_at(ctx_, piece_, blocks_.begin++, job_.first_head);
        end_ = at_ + 2 * job_.num_heads * bytes_;
      }
      return std::exchange(at_, at_ + bytes_);
    }
    void ask_for_rest() {
      for (const uint8_t* p = next(); p != nullptr; p = next()) prefetch_bytes(p, bytes_);
    }

   private:
    const Attend& attend_;
    const RunContext& ctx_;
    const Job& job_;
    const Piece& piece_;
    Blocks blocks_;
    size_t bytes_;
    const uint8_t *at_ = nullptr, *end_ = nullptr;
  };

  // Whoever finishes the last chunk of a head merges them all, in order.
  void run_head(RunContext& ctx, const Job& job, int32_t head, const AttentionTask& t,
                ThreadScratch& scratch) {
    const Piece& piece = pieces_[job.piece];
    if (job.chunk == Job::kAllChunks) {
      ctx.kernels->attend(t, ctx.kv->type, scratch.attention);
      return finish(ctx, t, piece, head);
    }
    const size_t floats = partial_size(ctx, piece);
    float* partials = partials_.data() + piece.partial + floats * piece.num_chunks * head;
    ctx.kernels->attend_chunk(t, ctx.kv->type, scratch.attention, piece.first_chunk + job.chunk,
                              partials + floats * job.chunk);
    std::atomic<int32_t>& left = left_[job.piece * layer(ctx).num_kv_heads + head];
    if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    ctx.kernels->attend_merge(t, ctx.kv->type, scratch.attention, partials);
    finish(ctx, t, piece, head);
  }

  AttentionTask task(RunContext& ctx, ThreadScratch& scratch, const Piece& piece,
                     int64_t kv_head) const {
    const KvMemory::Layer& kv = layer(ctx);
    const StepView& step = ctx.step;
    const int32_t g = group(ctx);
    const int64_t column = kv_head * g * kv.head_dim;
    const Buffer& q = ctx.buffer(s_.q.buffer);
    const int64_t width = static_cast<int64_t>(s_.q.count) * kv.head_dim;
    AttentionTask t;
    t.q = q.f32 + piece.token * q.width + s_.q.column + column;
    t.ldq = q.width;
    // Without a float result, rows stay in the thread's tile until they are quantized.
    const bool to_buffer = s_.out_f32 >= 0;
    t.out = to_buffer ? ctx.buffer(s_.out_f32).f32 + piece.token * width + column : scratch.tile;
    t.ldo = to_buffer ? width : static_cast<int64_t>(g) * kv.head_dim;
    t.num_tokens = piece.num_tokens;
    t.group = g;
    t.head_dim = kv.head_dim;
    t.first_position = step.positions[piece.token];
    t.length = s_.causal ? 0 : step.seq_len[piece.seq];
    t.blocks = step.block_table + static_cast<int64_t>(piece.seq) * step.table_width;
    t.kv = ctx.kv->blocks(s_.layer, kv_head);
    t.scale = s_.scale;
    t.window = s_.window;
    t.softcap = s_.softcap;
    t.sinks = s_.sinks.empty() ? nullptr : s_.sinks.data() + kv_head * g;
    t.ahead = nullptr;
    return t;
  }

  void finish(RunContext& ctx, const AttentionTask& t, const Piece& piece, int64_t kv_head) {
    if (s_.out_q8 < 0) return;
    QuantizedRows& q8 = ctx.buffer(s_.out_q8).q8;
    const int64_t width = static_cast<int64_t>(t.group) * t.head_dim;
    const int64_t column = kv_head * width;
    quantize_rows(t.out - column, t.ldo, q8, piece.token, t.num_tokens, column / kGroup,
                  (column + width) / kGroup);
  }

  AttentionSpec s_;
  std::vector<Piece> pieces_;
  std::vector<Job> jobs_;
  std::vector<std::atomic<int32_t>> left_;  // [piece][kv head] chunks not done
  std::vector<float> partials_;
};

}  // namespace

std::unique_ptr<Instruction> make(AttentionSpec s) {
  return std::make_unique<Attend>(std::move(s));
}

}  // namespace octavo
