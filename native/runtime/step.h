// What one step brings, and what instructions may use while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/panel.h"
#include "runtime/kernels.h"
#include "runtime/thread_pool.h"

namespace octavo {

// See backends/base.py, class Step. Pointers are borrowed for the length of the step.
struct StepView {
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
  const int32_t* query_start = nullptr;
  const int32_t* seq_len = nullptr;
  const int32_t* block_table = nullptr;
  const int32_t* logit_rows = nullptr;
  int32_t num_tokens = 0;   // T
  int32_t num_seqs = 0;     // S
  int32_t num_rows = 0;     // R
  int32_t table_width = 0;  // B
};

// Activations between instructions: float rows, or quantized rows, in the arena.
struct Buffer {
  float* f32 = nullptr;  // [rows][width]
  QuantizedRows q8;      // used when f32 is null
  int64_t width = 0;
};

// The paged KV cache. Block-major: all layers of a block lie together, so memory is touched block
// by block and copying one is a single memcpy.
struct KvMemory {
  uint8_t* data = nullptr;
  size_t block_bytes = 0;
  int32_t num_blocks = 0;
  KvType type = KvType::kF16;
  struct Layer {
    size_t offset;      // of head 0 within a block
    size_t head_bytes;  // K and V of one head
    int32_t num_kv_heads;
    int32_t head_dim;
  };
  std::vector<Layer> layers;
};

enum class Rows : int32_t { kTokens, kLogits };

// Everything a running instruction may read. One per executor, refreshed each step.
struct RunContext {
  StepView step;
  ThreadPool* pool = nullptr;
  const RuntimeKernels* kernels = nullptr;
  KvMemory* kv = nullptr;
  std::vector<Buffer>* buffers = nullptr;
  std::vector<PanelMatrix>* matrices = nullptr;
  float* logits = nullptr;  // [R][logits_width], where the program's output goes
  int64_t logits_width = 0;

  int64_t rows(Rows kind) const { return kind == Rows::kTokens ? step.num_tokens : step.num_rows; }
  Buffer& buffer(int id) const { return (*buffers)[id]; }
};

// Private memory of a thread, 64-byte aligned.
struct ThreadScratch {
  void* linear;      // kLinearScratch bytes, for linear_*
  float* tile;       // kTileFloats, for epilogues
  float* attention;  // attention_scratch_floats(largest head)
};
constexpr int64_t kTileFloats = 128 * 1024;

// One region of a step. run is called by every thread of the pool; the executor puts a barrier
// after it. prepare is called by one thread before the step.
class Instruction {
 public:
  virtual ~Instruction() = default;
  virtual const char* name() const = 0;
  virtual void prepare(RunContext&) { next_.store(0, std::memory_order_relaxed); }
  virtual void run(RunContext& ctx, int tid, ThreadScratch& scratch) = 0;
  // Called by a thread that is about to wait for the others before `run`: prefetch what it will
  // read first. Reads no activations.
  virtual void warm(const RunContext&, int /*tid*/) const {}

 protected:
  // Work items handed out one by one; which thread takes which does not change results.
  int64_t take(int64_t count = 1) { return next_.fetch_add(count, std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<int64_t> next_{0};
};

// Asks for the first lines of a stream, as many as the core can have under way.
inline void prefetch_stream(const uint8_t* p, size_t bytes) {
  constexpr size_t kMost = 6144;
  for (size_t i = 0; i < bytes && i < kMost; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// The part of [0, n) that belongs to thread tid, in units of `unit`.
struct Span {
  int64_t begin;
  int64_t end;
};
inline Span split(int64_t n, int64_t unit, int tid, int num_threads) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * tid / num_threads * unit;
  const int64_t end = units * (tid + 1) / num_threads * unit;
  return {begin, end < n ? end : n};
}

}  // namespace octavo
