// A compiled program with its weights, activations and KV memory; runs whole steps.
//
// Life: plan matrices -> allocate_weights -> pack each -> place buffers -> allocate_arena -> add
// instructions -> define_kv -> allocate_kv -> run. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/adapters.h"
#include "runtime/arena.h"
#include "runtime/claims.h"
#include "runtime/instructions.h"
#include "runtime/step.h"
#include "sampling/sampler.h"

namespace octavo {

class Executor {
 public:
  // What quantized weights are multiplied in, by step: kMixed is bf16 where all tokens are of
  // prompts (StepView::of_prompts), int8 elsewhere. Bf16 needs has_bf16_products().
  enum class Kind { kInt8, kBf16, kMixed };

  Executor(int num_threads, int64_t max_tokens, int64_t max_rows, Kind kind);

  int num_threads() const { return pool_.size(); }
  ThreadPool& pool() { return pool_; }

  // Weights. Offsets follow planning order, which is execution order.
  int plan_matrix(SourceType source, int64_t n, int64_t k, bool as_float);
  size_t matrix_bytes(int id) const { return matrices_.at(id).size_bytes(); }
  size_t weight_bytes() const { return weight_bytes_; }
  size_t scratch_bytes() const { return scratch_arena_.size(); }
  void allocate_weights();
  // In their place, for timing a model whose weights are not at hand: matrices share at most
  // `most_bytes` of memory (or the largest one's size), one after the other and again from its
  // start, that hold numbers every format can read.
  void stand_in_weights(size_t most_bytes);
  // A tensor to pack: its bytes as in the file. mapped: they are a view of a mapped file, whose
  // pages may be dropped when they have been read, so that weights exist once in memory.
  struct Raw {
    int matrix;
    const uint8_t* data;
    size_t bytes;
    bool mapped;
  };
  // Packs all of them on all threads.
  void pack(const std::vector<Raw>& tensors);

  // Of the kinds of products that steps may have, the one whose rows take more memory.
  Products largest_products() const {
    return kind_ == Kind::kInt8 ? Products::kInt8 : Products::kBf16;
  }
  // Activations. An offset is chosen by the caller, who knows lifetimes.
  int64_t most_rows() const { return std::max(max_tokens_, max_rows_); }
  size_t buffer_bytes(int64_t width, bool quantized) const;
  int place_buffer(int64_t width, bool quantized, size_t offset);
  int place_scratch(size_t bytes, size_t offset);
  void allocate_arena(size_t bytes);

  void add(std::unique_ptr<Instruction> instruction);

  // Adapters of at most this rank, changing at most `places` products of one instruction. Returns
  // the bytes that this takes; adapters themselves come on top.
  size_t enable_adapters(int64_t max_rank, int64_t places);
  void load_adapter(int number, const std::vector<RawLowRank>& changes);
  void unload_adapter(int number);

  // A table is read by token id: others are an error.
  void limit_tokens(int table);
  // A table is read by position + offset: later positions are an error.
  void limit_positions(int table, int32_t offset);

  // A table is read by the tokens' types: others are an error.
  void limit_types(int table);
  // No step may hold a part of a sequence.
  void require_whole_sequences() { whole_sequences_ = true; }

  // KV cache: one entry per layer, {num_kv_heads, head_dim, 0}, or {1, latent and key, latent}
  // where it holds latents. Returns the bytes of one block. one_at_a_time: no layer is read after
  // the next one is written, so that all share one memory.
  using KvLayers = std::vector<std::tuple<int32_t, int32_t, int32_t>>;
  size_t define_kv(const KvLayers& layers, KvType type, bool one_at_a_time);
  void allocate_kv(int32_t num_blocks);
  void copy_blocks(const int32_t* pairs, int64_t count);

  void set_output_width(int64_t width) { output_width_ = width; }
  int64_t output_width() const { return output_width_; }

  // While on, run adds up how long each instruction takes: from the end of the last item of the one
  // before to the end of its own last item. (One thread's clock would not do: while it sleeps, the
  // others may finish the next instruction.)
  void set_profiling(bool on);
  // (instruction name, seconds) in program order since profiling was switched on.
  std::vector<std::pair<std::string, double>> profile() const;

  // Runs one step; logits is [R][output_width]. Throws std::invalid_argument if an index of the
  // step is out of range.
  void run(const StepView& step, float* logits);
  // Runs one step and draws a token from each of its R rows, on the same threads.
  void run(const StepView& step, const SamplingView& sampling, const SampleOut& out);

 private:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  void check(const StepView& step) const;
  void run_step(const StepView& step, float* logits, const SamplingView* sampling,
                const SampleOut* samples);
  void seal();
  void lay_out_rows(int64_t rows, Products products);
  void look_ahead();
  void run_program(int tid, uint32_t tag);
  void add_profile(TimePoint start);
  void wait_closed(const Claims& claims, uint32_t tag);

  int64_t max_tokens_;
  int64_t max_rows_;
  Kind kind_;
  std::vector<PanelMatrix> matrices_;
  int64_t token_limit_ = INT32_MAX;
  int64_t position_limit_ = INT32_MAX;
  int64_t type_limit_ = 1;
  bool whole_sequences_ = false;
  std::vector<size_t> matrix_offsets_;
  size_t weight_bytes_ = 0;
  Arena weights_;
  std::unique_ptr<Adapters> adapters_;  // null: none can be loaded
  std::vector<Buffer> buffers_;
  enum class Form { kFloat, kQuantized, kScratch };
  struct Location {
    size_t offset;
    size_t bytes;
    Form form;
  };
  std::vector<Location> locations_;  // of the buffers in the arena
  int64_t laid_out_rows_ = 0;        // that quantized buffers are laid out for
  Products laid_out_products_ = Products::kInt8;
  Arena arena_;
  KvMemory kv_;
  Arena kv_arena_;
  std::vector<std::unique_ptr<Instruction>> program_;
  std::vector<ThreadScratch> scratch_;
  Arena scratch_arena_;
  Arena logits_;  // of run with sampling; [max_rows][output_width]
  std::vector<std::unique_ptr<SamplerScratch>> samplers_;  // one a thread, made on first use
  std::vector<RowScan> scans_;                             // of a step's few rows, likewise
  int64_t output_width_ = 0;
  std::vector<double> seconds_;  // one an instruction; empty: not profiling
  std::vector<TimePoint> ends_;  // while profiling, of this step: [thread][instruction]
  RunContext context_;
  std::vector<std::unique_ptr<Claims>> claims_;  // one an instruction
  alignas(64) std::atomic<uint32_t> closed_{0};  // regions closed, ever; sleepers wait on it
  ThreadPool::Job job_;
  ThreadPool pool_;  // last: its threads use everything above
};

}  // namespace octavo
