// The executor's own kernels (everything that is not a matrix product), one table per ISA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

enum class KvType : int32_t { kF32, kF16, kBF16, kInt8, kInt4 };
// Of one number; int4 puts two in a byte (kv_head_bytes).
constexpr size_t kv_type_bytes(KvType t) {
  return t == KvType::kF32 ? 4 : t == KvType::kInt8 ? 1 : 2;
}

constexpr int kBlockTokens = 32;  // tokens of a KV block
constexpr int kChunkBlocks = 8;   // blocks whose keys are reduced on their own before merging
constexpr int kPiecesBehind = 4;  // see AttentionTask::ahead
constexpr int kTileRows = 48;     // most (token, head) rows of one attention task
constexpr int kMaxHeadDim = 512;
constexpr int kMaxLatentDim = 640;  // of a latent with its rotated key
constexpr int64_t padded_head_dim(int64_t head_dim) {
  return (head_dim + 31) / 32 * 32;
}
// K and V of one KV head in a block; int8 has a float scale for each K and each V besides, int4
// what attention_int4.inl says.
constexpr size_t kv_head_bytes(KvType t, int64_t head_dim) {
  if (t == KvType::kInt4) {
    const size_t d = static_cast<size_t>(padded_head_dim(head_dim));
    const size_t halves = d + 2 * (d / 32) * kBlockTokens + 3 * kBlockTokens;
    return kBlockTokens * d + 2 * halves;
  }
  const size_t codes =
      2 * kBlockTokens * static_cast<size_t>(padded_head_dim(head_dim)) * kv_type_bytes(t);
  return codes + (t == KvType::kInt8 ? 2 * kBlockTokens * sizeof(float) : 0);
}

// A block of a layer with latents: one row for each token, of latent and rotated key; int8 has a
// float scale for each of both besides.
constexpr size_t kv_latent_bytes(KvType t, int64_t latent_and_key) {
  const size_t rows =
      kBlockTokens * static_cast<size_t>(padded_head_dim(latent_and_key)) * kv_type_bytes(t);
  return rows + (t == KvType::kInt8 ? 2 * kBlockTokens * sizeof(float) : 0);
}

// Where each block's part of some layer, or of a head of it, lies. Blocks come in groups of 2^bits:
// within a group the blocks of a layer are adjacent, layer after layer.
struct KvBlocks {
  uint8_t* data = nullptr;  // of block 0; not owned
  size_t stride = 0;        // bytes from one block to the next of its group
  size_t group_stride = 0;  // bytes from one group to the next
  int bits = 31;            // one group holds all

  uint8_t* at(int32_t block) const {
    const auto id = static_cast<size_t>(block);
    return data + (id >> bits) * group_stride + (id & ((size_t{1} << bits) - 1)) * stride;
  }
};

// One piece of attention work: adjacent tokens of one sequence, the query heads of one KV head.
//
// Row r is token r / group, head r % group. A KV block holds, for each layer and KV head, K as
// [padded_head_dim][32 tokens] and then V as [32 tokens][padded_head_dim]; a table may keep bf16
// and int8 in an order of its own (attention_bf16.inl, attention_vnni.inl), since nothing else
// looks inside a block.
struct AttentionTask {
  const float* q;  // token 0, first head of the group; heads follow each other, tokens are ld apart
  float* out;
  int64_t ldq;
  int64_t ldo;
  int32_t num_tokens;      // num_tokens * group <= kTileRows
  int32_t group;           // query heads per KV head
  int32_t head_dim;        // at most kMaxHeadDim
  int32_t first_position;  // of token 0, counted from the sequence's start
  int32_t length;          // of the whole sequence, where tokens see those behind them; else 0
  const int32_t* blocks;   // block ids of the sequence
  KvBlocks kv;             // of this layer and head
  float scale;
  int32_t window;  // 0: none; where tokens see those behind them, it reaches as far ahead
  float softcap;   // 0: none
  // Null, or a score for each head of the group that takes weight and adds nothing.
  const float* sinks = nullptr;
  // Null, or pieces of half a head's bytes in a block to ask memory for while the last chunk is
  // computed (two for each of its blocks): what the thread will read next. Behind all that there
  // could be, at 2 * kChunkBlocks, kPiecesBehind of keys that it reads right after these, or null.
  const uint8_t* const* ahead;
  // Over latents (attention_latent.inl): the size of a latent, head_dim counting the rotated key
  // too; q holds latent_dim floats a head and q_rope the rest. 0: over keys and values.
  int32_t latent_dim = 0;
  const float* q_rope = nullptr;
  int64_t ldq_rope = 0;
};

// Keys and values of a head for adjacent tokens: rows of head_dim floats.
struct KvRows {
  const float* k;
  const float* v;
  int64_t ldk;
  int64_t ldv;
  int32_t num_tokens;
};

struct RuntimeKernels {
  const char* name;
  KvType preferred_kv;  // the 16-bit type that is fastest here
  // out = x / sqrt(mean(x^2) + eps) * (w + offset), n elements; out may be x.
  void (*rms_norm)(const float* x, const float* w, float* out, int64_t n, float eps, float offset);
  // gate = act(gate) * up
  void (*silu_mul)(float* gate, const float* up, int64_t n);
  void (*gelu_mul)(float* gate, const float* up, int64_t n);
  void (*gelu_erf_mul)(float* gate, const float* up, int64_t n);
  // gate = g * sigmoid(alpha * g) * (u + 1), g = min(gate, limit), u = clamp(up, -limit, limit)
  void (*clamped_swiglu)(float* gate, const float* up, int64_t n, float alpha, float limit);
  void (*silu)(const float* x, float* out, int64_t n);
  void (*gelu)(const float* x, float* out, int64_t n);
  void (*gelu_erf)(const float* x, float* out, int64_t n);
  void (*tanh)(const float* x, float* out, int64_t n);
  void (*softcap)(const float* x, float* out, int64_t n, float cap);
  void (*add)(const float* a, const float* b, float* out, int64_t n);
  void (*mul)(const float* a, const float* b, float* out, int64_t n);
  void (*scale)(const float* x, float* out, int64_t n, float factor);
  // out += x * factor
  void (*add_scaled)(float* out, const float* x, int64_t n, float factor);
  // Rotates one head in place; cs holds cos[half] then sin[half].
  void (*rope)(float* head, const float* cs, int64_t half, bool interleaved);
  // Writes one head of some tokens from offset `at` of a block on. With int4 the block's first
  // token must have been written before, or be among them.
  void (*kv_write)(const KvRows& rows, uint8_t* block, int64_t head_dim, int at, KvType type);
  // scratch: attention_scratch_bytes(), 64-byte aligned, private to the thread.
  void (*attend)(const AttentionTask& task, KvType type, float* scratch);
  // The same in two halves, for few rows over many keys: each chunk's sums into `partial`
  // (partial_floats), then all chunks merged. Same bits as attend.
  void (*attend_chunk)(const AttentionTask& task, KvType type, float* scratch, int chunk,
                       float* partial);
  void (*attend_merge)(const AttentionTask& task, KvType type, float* scratch,
                       const float* partials);
  // Writes one token's latent and rotated key at offset `at` of a block.
  void (*latent_write)(const float* latent, const float* key, uint8_t* block, int64_t latent_dim,
                       int64_t rope_dim, int at, KvType type);
};

inline size_t partial_floats(int64_t rows, int64_t head_dim) {
  return static_cast<size_t>(rows * (padded_head_dim(head_dim) + 2));
}
inline size_t attention_scratch_floats(int64_t head_dim) {
  // q (int4 adds its codes), chunk output, total output; scores of a chunk, and their probabilities
  // in 16 bits, both padded; four numbers
  const int64_t scores = kChunkBlocks * kBlockTokens * 3 / 2 + 48;
  const int64_t row = 4 * padded_head_dim(head_dim) + scores + 4;
  return static_cast<size_t>(kTileRows * row) + 64;
}

// Chosen once from cpuid; OCTAVO_ISA lowers it.
const RuntimeKernels& runtime_kernels();

}  // namespace octavo
