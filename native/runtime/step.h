// What one step brings, and what instructions may use while it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/panel.h"
#include "runtime/kernels.h"
#include "runtime/thread_pool.h"
#include "sampling/sampler.h"

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
  const int32_t* types = nullptr;     // null: all 0
  const int32_t* adapters = nullptr;  // null: none; of each sequence, -1: none
  int32_t num_tokens = 0;             // T
  int32_t num_seqs = 0;               // S
  int32_t num_rows = 0;               // R
  int32_t table_width = 0;            // B
  bool of_prompts = false;            // all tokens are of prompts
};

// Activations between instructions: float rows, or quantized rows, in the arena; or scratch memory
// of some instructions.
struct Buffer {
  float* f32 = nullptr;      // [rows][width]
  QuantizedRows q8;          // used when f32 is null
  uint8_t* bytes = nullptr;  // scratch
  int64_t width = 0;
};

// The paged KV cache. Blocks lie in groups (KvBlocks), so that a sequence whose blocks follow one
// another is read in long runs, and memory is touched group by group.
struct KvMemory {
  uint8_t* data = nullptr;
  size_t block_bytes = 0;  // of all layers
  int32_t num_blocks = 0;
  int group_bits = 0;  // a group has 2^group_bits blocks, and divides num_blocks
  KvType type = KvType::kF16;
  struct Layer {
    size_t offset;      // of head 0, were a group one block
    size_t head_bytes;  // K and V of one head
    int32_t num_kv_heads;
    int32_t head_dim;        // with latents: of latent and rotated key together
    int32_t latent_dim = 0;  // 0: keys and values

    size_t block_bytes() const { return head_bytes * static_cast<size_t>(num_kv_heads); }
  };
  std::vector<Layer> layers;

  KvBlocks blocks(int layer, int64_t head) const {
    const Layer& l = layers[layer];
    return {data + (l.offset << group_bits) + l.head_bytes * static_cast<size_t>(head),
            l.block_bytes(), block_bytes << group_bits, group_bits};
  }
};

enum class Rows : int32_t { kTokens, kLogits };

class Adapters;

// Everything a running instruction may read. One per executor, refreshed each step.
struct RunContext {
  StepView step;
  ThreadPool* pool = nullptr;
  const RuntimeKernels* kernels = nullptr;
  KvMemory* kv = nullptr;
  std::vector<Buffer>* buffers = nullptr;
  std::vector<PanelMatrix>* matrices = nullptr;
  Adapters* adapters = nullptr;            // null: none can be loaded
  const SamplingView* sampling = nullptr;  // null: the step ends with the logits
  const SampleOut* samples = nullptr;
  std::vector<RowScan>* scans = nullptr;  // room for some rows to be scanned by all threads
  float* logits = nullptr;                // [R][logits_width], where the program's output goes
  int64_t logits_width = 0;
  Products products = Products::kInt8;  // of this step

  int64_t rows(Rows kind) const { return kind == Rows::kTokens ? step.num_tokens : step.num_rows; }
  Buffer& buffer(int id) const { return (*buffers)[id]; }
};

// Private memory of a thread, 64-byte aligned.
struct ThreadScratch {
  float* tile;              // kTileFloats or more, for epilogues; two panels of all rows, twice
  float* attention;         // attention_scratch_floats(largest head)
  SamplerScratch* sampler;  // null until a step samples
  PanelStream next;         // the weights that the thread will read first after this region
};
constexpr int64_t kTileFloats = 128 * 1024;

// One region of a step, cut into items that threads claim one by one. An item's result does not
// depend on who computes it, nor on how many items there are.
class Instruction {
 public:
  virtual ~Instruction() = default;
  virtual const char* name() const = 0;
  // The number of items of this step. Called by one thread before the step.
  virtual int64_t prepare(RunContext& ctx) = 0;
  virtual void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) = 0;
  // After prepare: the weights, or other memory, that thread tid will read first, if any. Threads
  // prefetch it while they wait for the regions before this one.
  virtual PanelStream weights(const RunContext&, int /*tid*/) const { return {}; }
  virtual const uint8_t* warm(const RunContext&, int /*tid*/) const { return nullptr; }
};

// Whether the thread that has done an item of `items` takes the one after it: both are of its
// share.
inline bool follows(int64_t item, int64_t items, int64_t threads) {
  const int64_t next = item + 1;
  if (next == items) return false;
  const int64_t t = (next * threads + items - 1) / items;
  return items * t / threads != next;
}

// Rows in items of equal size: enough of them that a late thread can leave some to the others.
class RowItems {
 public:
  int64_t cut(int64_t rows, int num_threads) {
    constexpr int64_t kItemsPerThread = 8;
    rows_ = rows;
    step_ = (rows + num_threads * kItemsPerThread - 1) / (num_threads * kItemsPerThread);
    if (step_ < 1) step_ = 1;
    return (rows + step_ - 1) / step_;
  }
  int64_t begin(int64_t item) const { return item * step_; }
  int64_t end(int64_t item) const { return std::min(rows_, (item + 1) * step_); }

 private:
  int64_t rows_ = 0;
  int64_t step_ = 1;
};

// Asks for lines of memory, into the second-level cache. Any address will do: a prefetch never
// faults. Always inline, as all that does nothing else: to GCC a function without effects or a
// result need not be called.
__attribute__((always_inline)) inline void prefetch_bytes(const uint8_t* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// Asks for the first lines of a stream, as many as the core can have under way.
__attribute__((always_inline)) inline void prefetch_stream(const uint8_t* p) {
  prefetch_bytes(p, 6144);
}

// Asks for the panels that a thread will read next, piece by piece while it waits: four at a time,
// as products of few rows read them.
class StreamAhead {
 public:
  // Goes on if these are the panels asked for last.
  void follow(const PanelStream& stream) {
    if (stream.data == stream_.data) return;
    stream_ = stream;
    quad_ = stream.data;
    at_ = asked_ = 0;
  }

  // Asks for some more lines. False: there are no panels, or enough is asked for.
  bool ask() {
    if (stream_.data == nullptr || asked_ >= kMost) return false;
    for (size_t p = 0; p < kPanels; ++p) {
      prefetch_bytes(quad_ + p * stream_.panel_bytes + at_, kPiece);
    }
    asked_ += kPanels * kPiece;
    at_ += kPiece;
    if (at_ >= stream_.panel_bytes) {
      quad_ += kPanels * stream_.panel_bytes;
      at_ = 0;
    }
    return true;
  }

 private:
  static constexpr size_t kPanels = 4;
  static constexpr size_t kPiece = 128;      // of a panel, between two looks at what is waited for
  static constexpr size_t kMost = 96 << 10;  // a tenth of the smallest second-level caches in use
  PanelStream stream_;
  const uint8_t* quad_ = nullptr;
  size_t at_ = 0;
  size_t asked_ = 0;
};

}  // namespace octavo
