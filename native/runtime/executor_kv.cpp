// The executor's KV memory.
#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "runtime/executor.h"

namespace octavo {
namespace {

constexpr int kMostGroupBits = 4;  // of a group of blocks; cache/fresh_blocks.py likes to know

void require(bool ok, const char* message) {
  if (!ok) throw std::invalid_argument(std::string("executor: ") + message);
}

}  // namespace

size_t Executor::define_kv(const KvLayers& layers, KvType type, bool one_at_a_time) {
  kv_.type = type;
  kv_.layers.clear();
  size_t offset = 0, end = 0;
  for (const auto& [heads, head_dim, latent_dim] : layers) {
    if (latent_dim > 0) {
      require(heads == 1 && latent_dim < head_dim && head_dim <= kMaxLatentDim,
              "a latent and its key must be one head of at most 640");
      require(type != KvType::kInt4, "latents cannot be kept in int4; use f32, f16, bf16 or int8");
      const bool whole = latent_dim % 32 == 0 && head_dim % 32 == 0 && latent_dim <= kMaxHeadDim;
      require(type != KvType::kInt8 || whole,
              "latents in int8, at most 512, and their keys must be multiples of 32; use f32, f16 "
              "or bf16");
    } else {
      require(head_dim > 0 && head_dim <= kMaxHeadDim, "head_dim must be 1 to 512");
    }
    const size_t head =
        latent_dim > 0 ? kv_latent_bytes(type, head_dim) : kv_head_bytes(type, head_dim);
    kv_.layers.push_back({offset, head, heads, head_dim, latent_dim});
    const size_t size = head * static_cast<size_t>(heads);
    end = std::max(end, offset + size);
    if (!one_at_a_time) offset += size;
  }
  kv_.block_bytes = end;
  return end;
}

void Executor::allocate_kv(int32_t num_blocks) {
  require(num_blocks > 0, "the KV cache needs at least one block");
  kv_arena_ = Arena();  // free the old memory first
  kv_arena_ = Arena(kv_.block_bytes * static_cast<size_t>(num_blocks));
  kv_.data = kv_arena_.data();
  kv_.num_blocks = num_blocks;
  kv_.group_bits = std::min(kMostGroupBits, std::countr_zero(static_cast<uint32_t>(num_blocks)));
}

void Executor::copy_blocks(const int32_t* pairs, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t from = pairs[2 * i], to = pairs[2 * i + 1];
    require(from >= 0 && from < kv_.num_blocks && to >= 0 && to < kv_.num_blocks,
            "copy_blocks: block id out of range");
    for (size_t l = 0; l < kv_.layers.size(); ++l) {
      const KvBlocks blocks = kv_.blocks(static_cast<int>(l), 0);
      std::memcpy(blocks.at(to), blocks.at(from), kv_.layers[l].block_bytes());
    }
  }
}

}  // namespace octavo
