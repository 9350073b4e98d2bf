// The executor's kernels with NEON: rows, KV cache and attention.
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "runtime/kernels.h"
#include "tests/arm_checks.h"

namespace octavo {

extern const RuntimeKernels kernels_scalar;
extern const RuntimeKernels kernels_neon;

namespace {

// Both tables' results of one kernel; the scalar table rounds twice where NEON fuses.
void check_close(const std::string& what, size_t n,
                 const std::function<void(const RuntimeKernels&, float*)>& kernel) {
  Floats got(n), want(n);
  kernel(kernels_neon, got.data());
  kernel(kernels_scalar, want.data());
  const float far = distance(got, want);
  expect(far < 4e-6f, what + ", " + std::to_string(n) + " elements: off by " + std::to_string(far));
}

void check_row_kernels() {
  using K = const RuntimeKernels&;
  for (size_t n : {1, 7, 8, 64, 67, 576}) {
    const Floats x = random_floats(n), y = random_floats(n);
    const auto size = static_cast<int64_t>(n);
    const float* a = x.data();
    const float* b = y.data();
    const auto copied = [&](float* out) { return std::copy(a, a + n, out) - n; };
    check_close("rms_norm", n, [&](K k, float* o) { k.rms_norm(a, b, o, size, 1e-5f, 1.0f); });
    check_close("silu_mul", n, [&](K k, float* o) { k.silu_mul(copied(o), b, size); });
    check_close("gelu_mul", n, [&](K k, float* o) { k.gelu_mul(copied(o), b, size); });
    check_close("silu", n, [&](K k, float* o) { k.silu(a, o, size); });
    check_close("gelu", n, [&](K k, float* o) { k.gelu(a, o, size); });
    check_close("softcap", n, [&](K k, float* o) { k.softcap(a, o, size, 30.0f); });
    check_close("add", n, [&](K k, float* o) { k.add(a, b, o, size); });
    check_close("mul", n, [&](K k, float* o) { k.mul(a, b, o, size); });
    check_close("scale", n, [&](K k, float* o) { k.scale(a, o, size, 0.3f); });
    check_close("add_scaled", n, [&](K k, float* o) { k.add_scaled(copied(o), b, size, -0.7f); });
    check_close("clamped_swiglu", n,
                [&](K k, float* o) { k.clamped_swiglu(copied(o), b, size, 1.702f, 0.5f); });
    if (n % 2 != 0) continue;
    check_close("rope", n, [&](K k, float* o) { k.rope(copied(o), b, size / 2, false); });
    check_close("rope in pairs", n, [&](K k, float* o) { k.rope(copied(o), b, size / 2, true); });
  }
}

// A sequence's keys and values in blocks, and a few of its last tokens' queries.
struct Sequence {
  static constexpr int kTokens = 5, kGroupHeads = 3, kLength = 600;

  Sequence(int64_t head_dim, KvType kv_type, int32_t window, float softcap)
      : type(kv_type),
        stride(kv_head_bytes(kv_type, head_dim)),
        blocks((kLength + kBlockTokens - 1) / kBlockTokens),
        neon_cache(stride * blocks.size()),
        scalar_cache(stride * blocks.size()),
        q(random_floats(static_cast<size_t>(kTokens * kGroupHeads * head_dim))) {
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = static_cast<int32_t>(blocks.size() - 1 - i);
    for (int t = 0; t < kLength; ++t) {
      const Floats k = random_floats(static_cast<size_t>(head_dim)), v = random_floats(k.size());
      const size_t at = stride * static_cast<size_t>(blocks[static_cast<size_t>(t / kBlockTokens)]);
      const KvRows row{k.data(), v.data(), head_dim, head_dim, 1};
      kernels_neon.kv_write(row, neon_cache.get() + at, head_dim, t % kBlockTokens, type);
      kernels_scalar.kv_write(row, scalar_cache.get() + at, head_dim, t % kBlockTokens, type);
    }
    task.ldq = task.ldo = kGroupHeads * head_dim;
    task.num_tokens = kTokens;
    task.group = kGroupHeads;
    task.head_dim = static_cast<int32_t>(head_dim);
    task.first_position = kLength - kTokens;
    task.length = 0;
    task.blocks = blocks.data();
    task.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    task.window = window;
    task.softcap = softcap;
  }

  bool caches_agree() const {
    return std::memcmp(neon_cache.get(), scalar_cache.get(), stride * blocks.size()) == 0;
  }
  // The task for `count` tokens from `first` on.
  AttentionTask part(int first, int count, const Aligned& cache, Floats& out) const {
    AttentionTask piece = task;
    piece.q = q.data() + first * task.ldq;
    piece.out = out.data() + first * task.ldo;
    piece.num_tokens = count;
    piece.first_position += first;
    piece.kv = {cache.get(), stride};
    return piece;
  }
  Floats whole(const RuntimeKernels& kernels, const Aligned& cache, float* scratch) const {
    Floats out(q.size());
    kernels.attend(part(0, kTokens, cache, out), type, scratch);
    return out;
  }
  // By tokens, and each token by chunks of keys.
  Floats by_pieces(const RuntimeKernels& kernels, const Aligned& cache, float* scratch) const {
    constexpr int kChunk = kBlockTokens * kChunkBlocks;
    Floats out(q.size());
    for (int t = 0; t < kTokens; ++t) {
      const AttentionTask piece = part(t, 1, cache, out);
      const int position = piece.first_position;
      const int first = task.window > 0 ? std::max(0, position - task.window + 1) : 0;
      Floats partials;
      for (int c = first / kChunk; c <= position / kChunk; ++c) {
        Floats partial(partial_floats(kGroupHeads, task.head_dim));
        kernels.attend_chunk(piece, type, scratch, c, partial.data());
        partials.insert(partials.end(), partial.begin(), partial.end());
      }
      kernels.attend_merge(piece, type, scratch, partials.data());
    }
    return out;
  }

  KvType type;
  size_t stride;  // bytes of a block
  std::vector<int32_t> blocks;
  Aligned neon_cache, scalar_cache;
  Floats q;
  AttentionTask task{};
};

void check_attention() {
  struct Case {
    int64_t head_dim;
    int32_t window;
    float softcap;
  };
  for (const Case& c : {Case{64, 0, 0.0f}, Case{80, 0, 50.0f}, Case{128, 290, 0.0f}}) {
    for (const KvType type :
         {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kInt4}) {
      const Sequence s(c.head_dim, type, c.window, c.softcap);
      const std::string what = "attention of " + std::to_string(c.head_dim) + " dimensions, type " +
                               std::to_string(static_cast<int>(type));
      Aligned memory(attention_scratch_floats(c.head_dim) * sizeof(float));
      float* scratch = reinterpret_cast<float*>(memory.get());
      const Floats got = s.whole(kernels_neon, s.neon_cache, scratch);
      expect(same_bits(got, s.by_pieces(kernels_neon, s.neon_cache, scratch)), what + ": pieces");
      const Floats want = s.whole(kernels_scalar, s.scalar_cache, scratch);
      const bool codes = type == KvType::kInt8 || type == KvType::kInt4;
      // A number halfway between two codes may become either.
      expect(codes || s.caches_agree(), what + ": the cache");
      const float most = codes ? 3e-2f : 1e-5f;
      expect(distance(got, want) < most, what + ": off by " + std::to_string(distance(got, want)));
      const Floats same = s.whole(kernels_neon, s.scalar_cache, scratch);
      expect(distance(same, want) < 1e-5f, what + ": of one cache");
    }
  }
}

// Attention over latents, whose rows are keys and values at once.
void check_latents(int latent_dim, int rope_dim, std::initializer_list<KvType> types) {
  constexpr int kHeads = 5, kLength = 90;
  constexpr int kBlocks = (kLength + kBlockTokens - 1) / kBlockTokens;
  const int32_t order[kBlocks] = {2, 0, 1};
  for (const KvType type : types) {
    const size_t stride = kv_latent_bytes(type, latent_dim + rope_dim);
    Aligned neon_cache(stride * kBlocks), scalar_cache(stride * kBlocks);
    for (int t = 0; t < kLength; ++t) {
      const Floats latent = random_floats(static_cast<size_t>(latent_dim)),
                   key = random_floats(static_cast<size_t>(rope_dim));
      const size_t at = stride * static_cast<size_t>(order[t / kBlockTokens]);
      kernels_neon.latent_write(latent.data(), key.data(), neon_cache.get() + at, latent_dim,
                                rope_dim, t % kBlockTokens, type);
      kernels_scalar.latent_write(latent.data(), key.data(), scalar_cache.get() + at, latent_dim,
                                  rope_dim, t % kBlockTokens, type);
    }
    const Floats q = random_floats(static_cast<size_t>(kHeads * latent_dim)),
                 q_rope = random_floats(static_cast<size_t>(kHeads * rope_dim));
    Floats got(q.size()), want(q.size());
    AttentionTask task{};
    task.q = q.data();
    task.q_rope = q_rope.data();
    task.num_tokens = 1;
    task.group = kHeads;
    task.head_dim = latent_dim + rope_dim;
    task.latent_dim = latent_dim;
    task.first_position = kLength - 1;
    task.blocks = order;
    task.scale = 0.1f;
    Aligned memory(attention_scratch_floats(latent_dim + rope_dim) * sizeof(float));
    float* scratch = reinterpret_cast<float*>(memory.get());
    task.kv = {neon_cache.get(), stride};
    task.out = got.data();
    kernels_neon.attend(task, type, scratch);
    task.kv = {scalar_cache.get(), stride};
    task.out = want.data();
    kernels_scalar.attend(task, type, scratch);
    const std::string what =
        "attention over latents, type " + std::to_string(static_cast<int>(type));
    const float most = type == KvType::kInt8 ? 3e-2f : 1e-5f;
    expect(distance(got, want) < most, what + ": off by " + std::to_string(distance(got, want)));
  }
}

}  // namespace

void check_runtime() {
  check_row_kernels();
  check_attention();
  check_latents(70, 10, {KvType::kF32, KvType::kF16, KvType::kBF16});
  check_latents(64, 32, {KvType::kInt8});
}

}  // namespace octavo
