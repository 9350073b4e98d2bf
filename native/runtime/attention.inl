// Attention of one task: chunks of 256 keys at fixed positions, each reduced on its own, then
// merged in order. So the order of additions is the same however the work was cut and whatever else
// is computed. Included by kernels.inl.

namespace octavo {
namespace {

void kv_write_one(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at,
                  KvType type) {
  if (type == KvType::kF32) return kv_write_as<float>(k, v, block, head_dim, at);
  if (type == KvType::kF16) return kv_write_as<uint16_t>(k, v, block, head_dim, at);
  if (type == KvType::kInt8) return kv_write_int8(k, v, block, head_dim, at);
  if (type == KvType::kInt4) return kv_write_int4(k, v, block, head_dim, at);
  kv_write_as<Bf16>(k, v, block, head_dim, at);
}
void kv_write(const KvRows& rows, uint8_t* block, int64_t head_dim, int at, KvType type) {
  for (int t = 0; t < rows.num_tokens; ++t) {
    kv_write_one(rows.k + t * rows.ldk, rows.v + t * rows.ldv, block, head_dim, at + t, type);
  }
}

// Math: how queries, keys and probabilities meet (PlainMath and its cousins).
template <class Math>
class Attention {
 public:
  Attention(const AttentionTask& task, float* scratch)
      : t_(task),
        head_dim_(task.head_dim),
        value_dim_(task.latent_dim > 0 ? task.latent_dim : task.head_dim),
        d_(padded_head_dim(head_dim_)),
        columns_(padded_head_dim(value_dim_)) {
    rows_ = t_.num_tokens * t_.group;
    q_ = reinterpret_cast<typename Math::Query*>(scratch);
    out_ = scratch + kTileRows * query_stride();
    total_ = out_ + kTileRows * d_;
    scores_ = total_ + kTileRows * d_;
    weights_ = kApart ? scores_ + kTileRows * kScoresStride : scores_;
    max_ = weights_ + kTileRows * kWeightsStride;
    sum_ = max_ + kTileRows;
    total_max_ = sum_ + kTileRows;
    total_sum_ = total_max_ + kTileRows;
    for (int r = 0; r < rows_; ++r) {
      const int position = t_.first_position + r / t_.group;
      sees_[r] = {first_key(position), end_of_keys(position)};
    }
  }

  // Everything at once.
  void run() {
    load_queries();
    for (int c = first_chunk(); c <= last_chunk(); ++c) {
      ChunkBlocks blocks = blocks_of(c);
      look_ahead(c, blocks);
      if (c == first_chunk()) {
        chunk(c, blocks, total_, total_max_, total_sum_);
        continue;
      }
      chunk(c, blocks, out_, max_, sum_);
      merge(out_, max_, sum_);
    }
    write_out();
  }

  // One chunk's sums, to be merged later: [rows][padded head_dim], [rows] maxima, [rows] sums.
  void run_chunk(int c, float* partial) {
    load_queries();
    ChunkBlocks blocks = blocks_of(c);
    look_behind(blocks);
    chunk(c, blocks, partial, partial + rows_ * d_, partial + rows_ * (d_ + 1));
  }

  // Merges the partial sums of all chunks, in order, exactly as run does.
  void run_merge(const float* partials) {
    std::fill(total_sum_, total_sum_ + rows_, 0.0f);
    for (int c = first_chunk(); c <= last_chunk(); ++c, partials += rows_ * (d_ + 2)) {
      merge(partials, partials + rows_ * d_, partials + rows_ * (d_ + 1));
    }
    write_out();
  }

 private:
  int first_block() const { return sees_[0].begin / kBlockTokens; }
  int last_block() const { return (sees_[rows_ - 1].end - 1) / kBlockTokens; }
  int first_chunk() const { return first_block() / kChunkBlocks; }
  int last_chunk() const { return last_block() / kChunkBlocks; }

  int64_t query_stride() const {
    if constexpr (requires { Math::query_stride(d_); }) return Math::query_stride(d_);
    return d_;
  }
  typename Math::Query* query(int r) const { return q_ + r * query_stride(); }

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      if constexpr (kLatent) {
        Math::load_latent_query(t_, r, d_, query(r));
      } else {
        const float* q = t_.q + (r / t_.group) * t_.ldq + (r % t_.group) * head_dim_;
        Math::load_query(q, head_dim_, d_, t_.scale, query(r));
      }
    }
  }

  int first_key(int position) const {
    return t_.window > 0 ? std::max(0, position - t_.window + 1) : 0;
  }

  int end_of_keys(int position) const {
    if (t_.length == 0) return position + 1;
    return t_.window > 0 ? std::min(position + t_.window, t_.length) : t_.length;
  }

  // The first block of chunk c that some row sees.
  int begin_of(int c) const { return std::max(first_block(), c * kChunkBlocks); }

  ChunkBlocks blocks_of(int c) const {
    ChunkBlocks blocks{};
    blocks.count = std::min(last_block() + 1, (c + 1) * kChunkBlocks) - begin_of(c);
    for (int b = 0; b < blocks.count; ++b) blocks.at[b] = block_at(begin_of(c) + b);
    return blocks;
  }

  // Behind chunk c comes the next, and behind the last what the task says.
  void look_ahead(int c, ChunkBlocks& blocks) const {
    if (c == last_chunk()) return look_behind(blocks);
    const int next = begin_of(c) + blocks.count;
    if constexpr (kNear) {
      const uint8_t* pieces[kPiecesBehind] = {};
      for (int i = 0; i < kPiecesBehind && next + i <= last_block(); ++i) {
        pieces[i] = block_at(next + i);
      }
      return in_order(blocks, pieces);
    }
    for (int i = 0; i < 2 * blocks.count && next + i / 2 <= last_block(); ++i) {
      blocks.ahead[i] = block_at(next + i / 2) + i % 2 * Math::half_bytes(d_);
    }
  }

  // Behind the last chunk.
  void look_behind(ChunkBlocks& blocks) const {
    if constexpr (kNear) {
      constexpr const uint8_t* kNothing[kPiecesBehind] = {};
      return in_order(blocks, t_.ahead != nullptr ? t_.ahead + 2 * kChunkBlocks : kNothing);
    }
    if (t_.ahead != nullptr) std::copy_n(t_.ahead, 2 * blocks.count, blocks.ahead);
  }

  // Ahead of each half is the one that is read next, or after some more where halves are small;
  // keys come before values, and `behind` after all.
  void in_order(ChunkBlocks& blocks, const uint8_t* const* behind) const {
    const int64_t half = Math::half_bytes(d_);
    const int n = blocks.count;
    const int lead = std::clamp(static_cast<int>(kAheadBytes / half), 1, kPiecesBehind);
    const uint8_t* order[2 * kChunkBlocks + kPiecesBehind];
    for (int b = 0; b < n; ++b) {
      order[b] = blocks.at[b];
      order[n + b] = blocks.at[b] + half;
    }
    std::copy_n(behind, kPiecesBehind, order + 2 * n);
    std::copy_n(order + lead, 2 * n, blocks.ahead);
  }

  const uint8_t* block_at(int b) const { return t_.kv.at(t_.blocks[b]); }

  void chunk(int c, ChunkBlocks& blocks, float* out, float* max_row, float* sum_row) {
    const int base = begin_of(c) * kBlockTokens;
    for (int b = 0; b < blocks.count; ++b) block_scores(blocks, b, base);
    for (int r = 0, n = 1; r < rows_; r += n) {
      const Range blocks_seen = seen_blocks(r, base, blocks);
      for (n = 1; n < kSoftmaxRows && r + n < rows_; ++n) {
        if (seen_blocks(r + n, base, blocks) != blocks_seen) break;
      }
      softmax<kSoftmaxRows>(n, r, base, blocks_seen, blocks, max_row + r, sum_row + r);
    }
    for (int r = 0; r < rows_; r += kRows) {
      const int n = std::min(kRows, rows_ - r);
      const float* p = weights_ + r * kWeightsStride;
      const Range keys = span(r, n, blocks, base);
      if constexpr (kLatent) {
        Math::latent_values(n, p, d_, columns_, blocks, keys, out + r * d_);
      } else {
        Math::values(n, p, d_, blocks, keys, out + r * d_);
      }
      std::fill(blocks.ahead, blocks.ahead + 2 * kChunkBlocks, nullptr);  // asked for already
    }
  }

  // Keys of the chunk at `base` that any of rows [r, r + n) sees: a later token sees at least as
  // far, and starts no earlier.
  Range span(int r, int n, const ChunkBlocks& blocks, int base) const {
    const int most = blocks.count * kBlockTokens;
    const int begin = std::clamp(sees_[r].begin - base, 0, most);  // may be behind this chunk
    return {begin, std::max(begin, std::min(sees_[r + n - 1].end - base, most))};
  }

  void block_scores(const ChunkBlocks& blocks, int b, int base) {
    const int first = base + b * kBlockTokens;
    const uint8_t* ahead = blocks.ahead[b];
    for (int r = 0; r < rows_; r += kRows) {
      const int n = std::min(kRows, rows_ - r);
      if (sees_[r].begin >= first + kBlockTokens || sees_[r + n - 1].end <= first) continue;
      float* out = scores_ + r * kScoresStride + b * kBlockTokens;
      if constexpr (requires { &Math::latent_scores; }) {
        Math::latent_scores(n, query(r), d_, value_dim_, blocks.at[b], out, ahead);
      } else {
        Math::scores(n, query(r), d_, head_dim_, blocks.at[b], out, ahead);
      }
      ahead = nullptr;
    }
  }

  // Keys of the chunk at `base` that row r sees, in whole blocks.
  Range seen_blocks(int r, int base, const ChunkBlocks& blocks) const {
    const Range seen = sees_[r].from(base);
    const int end = (seen.end + kBlockTokens - 1) / kBlockTokens;
    return {std::max(0, seen.begin / kBlockTokens) * kBlockTokens,
            std::min(blocks.count, end) * kBlockTokens};
  }

  // Scores of `rows` rows from `row` on, which see the same blocks, become probabilities, each
  // against its maximum in the chunk. Keys that a row does not see get 0: they add nothing. Several
  // rows at a time, since each of the steps of one waits for the one before.
  template <int R>
  void softmax(int rows, int row, int base, Range in, const ChunkBlocks& blocks, float* max_row,
               float* sum_row) {
    if constexpr (R > 1) {
      if (rows < R) return softmax<R - 1>(rows, row, base, in, blocks, max_row, sum_row);
    }
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    float* const s = scores_ + row * kScoresStride;
    float* const weights = weights_ + row * kWeightsStride;
    const auto seen = [&](int r) { return sees_[row + r].from(base); };
    if (in.begin >= in.end) {
      std::fill_n(max_row, R, kLowest);
      std::fill_n(sum_row, R, 0.0f);
      for (int b = 0; b < blocks.count; ++b) put_zeros<R>(weights, b, blocks.at[b]);
      return;
    }
    Vec top[R], shift[R], total[R];
    Range whole = in;  // blocks of which every row sees all keys
    for (int r = 0; r < R; ++r) {
      float* x = s + r * kScoresStride;
      if (t_.softcap > 0) softcap(x + in.begin, x + in.begin, in.end - in.begin, t_.softcap);
      if (seen(r).begin > in.begin) whole.begin = in.begin + kBlockTokens;
      if (seen(r).end < in.end) whole.end = in.end - kBlockTokens;
      top[r] = set1(kLowest);
      total[r] = zero();
    }
    for (int i = in.begin; i < in.end; i += kBlockTokens) {
      const bool all = i >= whole.begin && i < whole.end;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) {
          Vec x = load(s + r * kScoresStride + i + j * kW);
          if (!all) x = keep_lanes(x, seen(r).from(i + j * kW), kLowest);
          top[r] = max(top[r], x);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      max_row[r] = reduce_max(top[r]);
      shift[r] = set1(max_row[r]);
    }
    for (int b = 0; b < blocks.count; ++b) {
      const int i = b * kBlockTokens;
      if (i < in.begin || i >= in.end) {
        put_zeros<R>(weights, b, blocks.at[b]);
        continue;
      }
      const bool all = i >= whole.begin && i < whole.end;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const float* x = s + r * kScoresStride + i;
        Vec p[kCols];
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) {
          p[j] = Math::weight(sub(load(x + j * kW), shift[r]));
          if (!all) p[j] = keep_lanes(p[j], seen(r).from(i + j * kW), 0.0f);
          total[r] = add(total[r], p[j]);
        }
        Math::put(p, weights + r * kWeightsStride, b, blocks.at[b], d_, seen(r).from(i));
      }
    }
    for (int r = 0; r < R; ++r) sum_row[r] = reduce_add(total[r]);
  }

  // For R rows that see none of block b's keys.
  template <int R>
  void put_zeros(float* weights, int b, const uint8_t* block) const {
    Vec p[kCols];
    for (int j = 0; j < kCols; ++j) p[j] = zero();
    for (int r = 0; r < R; ++r) Math::put(p, weights + r * kWeightsStride, b, block, d_, {0, 0});
  }

  // Adds a chunk's sums to the total.
  void merge(const float* out, const float* max_row, const float* sum_row) {
    for (int r = 0; r < rows_; ++r) {
      if (sum_row[r] == 0.0f) continue;  // saw no key of this chunk
      const float* row = out + r * d_;
      float* total = total_ + r * d_;
      if (total_sum_[r] == 0.0f) {
        std::copy(row, row + columns_, total);
        total_sum_[r] = sum_row[r];
        total_max_[r] = max_row[r];
        continue;
      }
      const float top = std::max(total_max_[r], max_row[r]);
      float a[kW], b[kW];
      store(a, exp_vec(set1(total_max_[r] - top)));
      store(b, exp_vec(set1(max_row[r] - top)));
      const Vec va = set1(a[0]), vb = set1(b[0]);
      map2(total, row, total, columns_, [&](Vec x, Vec y) { return fma(y, vb, mul(x, va)); });
      total_sum_[r] = total_sum_[r] * a[0] + sum_row[r] * b[0];
      total_max_[r] = top;
    }
  }

  void write_out() {
    for (int r = 0; r < rows_; ++r) {
      float* out = t_.out + (r / t_.group) * t_.ldo + (r % t_.group) * value_dim_;
      if constexpr (requires { &Math::unturn; }) Math::unturn(total_ + r * d_, d_);
      if constexpr (requires { &Math::unturn_latent; }) {
        Math::unturn_latent(total_ + r * d_, value_dim_);
      }
      scale_rows(total_ + r * d_, out, value_dim_, 1.0f / (total_sum_[r] + sink_weight(r)));
    }
  }

  // What the sink of a row's head adds to the sum of its probabilities.
  float sink_weight(int r) const {
    if (t_.sinks == nullptr) return 0.0f;
    float weight[kW];
    store(weight, exp_vec(set1(t_.sinks[r % t_.group] - total_max_[r])));
    return weight[0];
  }

  // Rows that meet keys and values together.
  static constexpr int kRows = [] {
    if constexpr (requires { Math::kRows; }) {
      return Math::kRows;
    } else {
      return kMicroRows;
    }
  }();
  static_assert(kTileRows % kRows == 0);
  // Probabilities take less room than scores and lie apart, in fewer lines; else in their place.
  static constexpr bool kApart = requires { Math::kApart; };
  static constexpr int64_t kWeightsStride = kApart ? kNarrowStride : kScoresStride;
  static constexpr int kSoftmaxRows = 4;
  // Memory is asked for in the order in which it is read, so much before.
  static constexpr bool kNear = requires { Math::kNear; };
  static constexpr int64_t kAheadBytes = 8 << 10;
  // Keys and values are the same rows of the cache.
  static constexpr bool kLatent = requires { &Math::load_latent_query; };

  const AttentionTask& t_;
  int64_t head_dim_;
  int64_t value_dim_;
  int64_t d_;        // head_dim_ padded: rows of queries and of sums
  int64_t columns_;  // value_dim_ padded
  int rows_;
  Range sees_[kTileRows] = {};  // keys by row, counted from the sequence's start
  typename Math::Query* q_;
  float *out_, *total_, *scores_, *weights_, *max_, *sum_, *total_max_, *total_sum_;
};

// Calls f with the attention of the cache's type.
template <class F>
void with_attention(const AttentionTask& task, KvType type, float* scratch, F f) {
  if (task.latent_dim > 0) {
    if (type == KvType::kF32) return f(Attention<LatentMath<float>>(task, scratch));
    if (type == KvType::kF16) return f(Attention<LatentMath<uint16_t>>(task, scratch));
    if (type == KvType::kInt8) return f(Attention<LatentInt8>(task, scratch));
    return f(Attention<LatentMath<Bf16>>(task, scratch));
  }
  if (type == KvType::kF32) return f(Attention<PlainMath<float>>(task, scratch));
  if (type == KvType::kF16) return f(Attention<PlainMath<uint16_t>>(task, scratch));
  if (type == KvType::kInt8) return f(Attention<Int8Math>(task, scratch));
  if (type == KvType::kInt4) return f(Attention<Int4Math>(task, scratch));
  f(Attention<PlainMath<Bf16>>(task, scratch));
}

void attend(const AttentionTask& task, KvType type, float* scratch) {
  with_attention(task, type, scratch, [](auto&& a) { a.run(); });
}
void attend_chunk(const AttentionTask& task, KvType type, float* scratch, int chunk,
                  float* partial) {
  with_attention(task, type, scratch, [&](auto&& a) { a.run_chunk(chunk, partial); });
}
void attend_merge(const AttentionTask& task, KvType type, float* scratch, const float* partials) {
  with_attention(task, type, scratch, [&](auto&& a) { a.run_merge(partials); });
}

}  // namespace
}  // namespace octavo
