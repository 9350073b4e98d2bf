#include "runtime/executor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr size_t kAlign = 64;
inline size_t aligned(size_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

void require(bool ok, const char* message) {
  if (!ok) throw std::invalid_argument(std::string("executor: ") + message);
}

// Workers spin between two steps, longer than what is done there: whoever yields or sleeps is back
// late, some 50 us on an idle machine and a time slice on a busy one. With more streams a server's
// other threads need the core more than the next step needs its first microseconds.
constexpr int kFewTokens = 4;
constexpr std::chrono::microseconds kLingerOfFew{300}, kLinger{40};
constexpr int64_t kPackUnitBytes = 1 << 20;  // of the file; what a thread packs at a time

// What the kernel is to do with the whole pages in [begin, end) of a mapped file. Best effort.
void advise_pages(const uint8_t* begin, const uint8_t* end, int advice) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

#if defined(MADV_POPULATE_READ)
constexpr int kMapPages = MADV_POPULATE_READ;  // all at once, where Linux is 5.14 or newer
#else
constexpr int kMapPages = MADV_WILLNEED;
#endif

}  // namespace

Executor::Executor(int num_threads, int64_t max_tokens, int64_t max_rows, Kind kind)
    : max_tokens_(max_tokens), max_rows_(max_rows), kind_(kind), pool_(num_threads) {
  require(kind == Kind::kInt8 || has_bf16_products(), "no products in bf16 here");
  // At least two panels of two products over all rows of the largest step.
  const int64_t rows = std::max(max_tokens, max_rows);
  const size_t floats = static_cast<size_t>(std::max(kTileFloats, 4 * kPanelRows * rows));
  const size_t tile = aligned(floats * sizeof(float));
  const size_t attention = aligned(attention_scratch_floats(kMaxLatentDim) * sizeof(float));
  const size_t per_thread = tile + attention;
  scratch_arena_ = Arena(per_thread * pool_.size());
  for (int t = 0; t < pool_.size(); ++t) {
    uint8_t* p = scratch_arena_.data() + t * per_thread;
    scratch_.push_back(
        {reinterpret_cast<float*>(p), reinterpret_cast<float*>(p + tile), nullptr, {}});
  }
  job_.f = [this](int tid, uint32_t tag) { run_program(tid, tag); };
  context_.pool = &pool_;
  context_.kernels = &runtime_kernels();
  context_.kv = &kv_;
  context_.buffers = &buffers_;
  context_.matrices = &matrices_;
  context_.scans = &scans_;
}

int Executor::plan_matrix(SourceType source, int64_t n, int64_t k, bool as_float) {
  require(weights_.data() == nullptr, "weights are allocated already");
  matrices_.push_back(plan_panels(source, n, k, as_float, kind_ != Kind::kInt8));
  matrix_offsets_.push_back(weight_bytes_);
  weight_bytes_ += aligned(matrices_.back().size_bytes());
  return static_cast<int>(matrices_.size()) - 1;
}

void Executor::allocate_weights() {
  weights_ = Arena(weight_bytes_);
  for (size_t i = 0; i < matrices_.size(); ++i) {
    matrices_[i].data = weights_.data() + matrix_offsets_[i];
  }
}

void Executor::stand_in_weights(size_t most_bytes) {
  for (const PanelMatrix& m : matrices_) most_bytes = std::max(most_bytes, aligned(m.size_bytes()));
  weights_ = Arena(std::min(most_bytes, weight_bytes_));
  size_t offset = 0;
  for (PanelMatrix& m : matrices_) {
    const size_t size = aligned(m.size_bytes());
    if (offset + size > weights_.size()) offset = 0;
    m.data = weights_.data() + offset;
    offset += size;
  }
  // About 0.01 as a float32 or bf16, 1 to 2 as an f16 scale, 60 as a byte.
  uint32_t state = 1;
  for (size_t i = 0; i < weights_.size(); ++i) {
    state = state * 1664525 + 1013904223;
    weights_.data()[i] = static_cast<uint8_t>(0x3c + (state >> 30));
  }
}

void Executor::pack(const std::vector<Raw>& tensors) {
  require(weights_.data() != nullptr, "pack before allocate_weights");
  struct Unit {
    const Raw* raw;
    int64_t begin;  // panels
    int64_t end;
  };
  std::vector<Unit> units;
  for (const Raw& raw : tensors) {
    const PanelMatrix& m = matrices_.at(raw.matrix);
    const size_t row_bytes = source_row_bytes(m.file, m.k);
    require(raw.bytes == row_bytes * static_cast<size_t>(m.n),
            "pack: the tensor's bytes do not match its shape");
    const int64_t step =
        std::max<int64_t>(1, kPackUnitBytes / static_cast<int64_t>(row_bytes * kPanelRows));
    for (int64_t b = 0; b < m.num_panels; b += step) {
      units.push_back({&raw, b, std::min(b + step, m.num_panels)});
    }
  }
  std::atomic<size_t> next{0};
  pool_.run([&](int) {
    for (size_t i = next++; i < units.size(); i = next++) {
      const Raw& raw = *units[i].raw;
      const PanelMatrix& m = matrices_[raw.matrix];
      const size_t panel = source_row_bytes(m.file, m.k) * kPanelRows;
      const uint8_t* first = raw.data + panel * units[i].begin;
      const uint8_t* last = raw.data + std::min(panel * units[i].end, raw.bytes);
      if (raw.mapped) advise_pages(first, last, kMapPages);
      pack_panels(m, raw.data, units[i].begin, units[i].end,
                  weights_.data() + matrix_offsets_[raw.matrix]);
      if (raw.mapped) advise_pages(first, last, MADV_DONTNEED);
    }
  });
}

size_t Executor::buffer_bytes(int64_t width, bool quantized) const {
  if (quantized) return aligned(QuantizedRows::bytes(most_rows(), width, largest_products()));
  return aligned(static_cast<size_t>(most_rows() * width) * sizeof(float));
}

int Executor::place_buffer(int64_t width, bool quantized, size_t offset) {
  require(offset % kAlign == 0, "buffer offsets are multiples of 64");
  Buffer b;
  b.width = width;
  buffers_.push_back(b);
  const Form form = quantized ? Form::kQuantized : Form::kFloat;
  locations_.push_back({offset, buffer_bytes(width, quantized), form});
  return static_cast<int>(buffers_.size()) - 1;
}

int Executor::place_scratch(size_t bytes, size_t offset) {
  require(offset % kAlign == 0, "buffer offsets are multiples of 64");
  buffers_.emplace_back();
  locations_.push_back({offset, bytes, Form::kScratch});
  return static_cast<int>(buffers_.size()) - 1;
}

void Executor::allocate_arena(size_t bytes) {
  arena_ = Arena(bytes);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Location& at = locations_[i];
    Buffer& b = buffers_[i];
    require(at.offset + at.bytes <= bytes, "a buffer lies outside the arena");
    uint8_t* p = arena_.data() + at.offset;
    if (at.form == Form::kQuantized) {
      b.q8 = QuantizedRows::in(p, most_rows(), b.width, largest_products());
    }
    if (at.form == Form::kFloat) b.f32 = reinterpret_cast<float*>(p);
    if (at.form == Form::kScratch) b.bytes = p;
  }
}

void Executor::add(std::unique_ptr<Instruction> instruction) {
  require(claims_.empty(), "the program has run already");
  program_.push_back(std::move(instruction));
}

size_t Executor::enable_adapters(int64_t max_rank, int64_t places) {
  require(max_rank > 0 && places > 0, "adapters need a rank and a place");
  adapters_ = std::make_unique<Adapters>(std::max(max_tokens_, max_rows_), max_rank, places);
  context_.adapters = adapters_.get();
  return adapters_->bytes();
}

void Executor::load_adapter(int number, const std::vector<RawLowRank>& changes) {
  require(adapters_ != nullptr, "adapters are not enabled");
  adapters_->load(number, changes, matrices_);
}

void Executor::unload_adapter(int number) {
  if (adapters_ != nullptr) adapters_->unload(number);
}

void Executor::limit_positions(int table, int32_t offset) {
  require(offset >= 0 && offset < matrices_.at(table).n, "the offset is outside the table");
  position_limit_ = std::min<int64_t>(position_limit_, matrices_.at(table).n - offset);
}

void Executor::limit_types(int table) {
  const int64_t rows = matrices_.at(table).n;
  type_limit_ = type_limit_ == 1 ? rows : std::min(type_limit_, rows);
}

void Executor::limit_tokens(int table) {
  token_limit_ = std::min(token_limit_, matrices_.at(table).n);
}

// The engine is trusted to be right, but an index past the end must be an error and not a crash.
void Executor::check(const StepView& s) const {
  require(s.num_tokens > 0 && s.num_tokens <= max_tokens_, "T is 0 or above max_tokens");
  require(s.num_rows >= 0 && s.num_rows <= std::max(max_tokens_, max_rows_), "R is too large");
  require(kv_.layers.empty() || kv_.data != nullptr, "step before allocate_kv");
  for (int32_t t = 0; t < s.num_tokens; ++t) {
    require(s.tokens[t] >= 0 && s.tokens[t] < token_limit_, "a token id is out of range");
    require(s.positions[t] >= 0 && s.positions[t] < position_limit_, "a position is out of range");
    require(kv_.layers.empty() || (s.slots[t] >= 0 && s.slots[t] / kBlockTokens < kv_.num_blocks),
            "a slot is out of range");
  }
  for (int32_t t = 0; s.types != nullptr && t < s.num_tokens; ++t) {
    require(s.types[t] >= 0 && s.types[t] < type_limit_, "a token's type is out of range");
  }
  for (int32_t r = 0; r < s.num_rows; ++r) {
    require(s.logit_rows[r] >= 0 && s.logit_rows[r] < s.num_tokens, "a logit row is out of range");
  }
  require(s.query_start[0] == 0 && s.query_start[s.num_seqs] == s.num_tokens,
          "query_start must run from 0 to T");
  for (int32_t q = 0; q < s.num_seqs; ++q) {
    const int32_t begin = s.query_start[q], end = s.query_start[q + 1];
    require(begin < end && end <= s.num_tokens, "query_start must rise");
    const int32_t last = s.positions[begin] + (end - begin) - 1;
    require(s.positions[end - 1] == last, "positions of a sequence must be adjacent");
    require(!whole_sequences_ || (s.positions[begin] == 0 && s.seq_len[q] == end - begin),
            "a part of a sequence, but its tokens see those behind them");
    require(last / kBlockTokens < s.table_width, "block_table is too narrow for a sequence");
    for (int32_t b = 0; b <= last / kBlockTokens; ++b) {
      const int32_t id = s.block_table[static_cast<int64_t>(q) * s.table_width + b];
      require(id >= 0 && (kv_.layers.empty() || id < kv_.num_blocks), "a block id is out of range");
    }
  }
}

void Executor::set_profiling(bool on) {
  seal();
  seconds_.assign(on ? program_.size() : 0, 0.0);
  ends_.assign(seconds_.size() * scratch_.size(), TimePoint());
}

std::vector<std::pair<std::string, double>> Executor::profile() const {
  std::vector<std::pair<std::string, double>> result;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    result.emplace_back(program_[i]->name(), seconds_[i]);
  }
  return result;
}

// Ends the program with the sampler and makes its claims; before the first step.
void Executor::seal() {
  if (!claims_.empty()) return;
  for (auto& instruction : make_sampling()) program_.push_back(std::move(instruction));
  for (size_t i = 0; i < program_.size(); ++i) {
    claims_.push_back(std::make_unique<Claims>(pool_.size()));
  }
}

// A thread goes through the regions in order: it takes what items it can, then waits for those that
// others took.
void Executor::run_program(int tid, uint32_t tag) {
  StreamAhead ahead;
  for (size_t i = 0; i < claims_.size(); ++i) {
    Claims& claims = *claims_[i];
    scratch_[tid].next = claims.weights_ahead(tid);
    for (int64_t item = claims.claim(tag, tid); item >= 0; item = claims.claim(tag, tid)) {
      program_[i]->run(context_, item, scratch_[tid]);
      // Only with an item in hand: then the step is running, and so is what profiling was set to.
      if (!ends_.empty()) ends_[claims_.size() * tid + i] = Clock::now();
      if (!claims.finish()) continue;
      closed_.fetch_add(1, std::memory_order_acq_rel);
      closed_.notify_all();
    }
    if (const uint8_t* memory = claims.memory_ahead(tid)) prefetch_stream(memory);
    ahead.follow(scratch_[tid].next);
    while (!claims.closed(tag) && ahead.ask()) {
    }
    wait_closed(claims, tag);
  }
}

void Executor::add_profile(TimePoint start) {
  const size_t count = seconds_.size();
  for (size_t i = 0; i < count; ++i) {
    TimePoint end = start;
    for (size_t t = 0; t < scratch_.size(); ++t) end = std::max(end, ends_[count * t + i]);
    seconds_[i] += std::chrono::duration<double>(end - start).count();
    start = end;
  }
}

void Executor::wait_closed(const Claims& claims, uint32_t tag) {
  if (spin_until([&] { return claims.closed(tag); })) return;
  for (;;) {
    const uint32_t seen = closed_.load(std::memory_order_acquire);
    if (claims.closed(tag)) return;
    closed_.wait(seen, std::memory_order_acquire);
  }
}

// Lays quantized rows out for so many of them: a step of one row has its groups side by side, not
// each in a tile of many rows, which threads would fetch from each other line by line.
void Executor::lay_out_rows(int64_t rows, Products products) {
  if (rows == laid_out_rows_ && products == laid_out_products_) return;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (locations_[i].form != Form::kQuantized) continue;
    Buffer& b = buffers_[i];
    b.q8 = QuantizedRows::in(b.q8.data, rows, b.width, products);
  }
  laid_out_rows_ = rows, laid_out_products_ = products;
}

// Tells each region what every thread reads after it.
void Executor::look_ahead() {
  std::vector<PanelStream> weights(scratch_.size());
  for (size_t i = program_.size(); i-- > 0;) {
    for (int t = 0; t < pool_.size(); ++t) {
      const bool last = i + 1 == program_.size();
      claims_[i]->set_ahead(t, last ? nullptr : program_[i + 1]->warm(context_, t), weights[t]);
      const PanelStream first = program_[i]->weights(context_, t);
      if (first.data != nullptr) weights[t] = first;
    }
  }
}

void Executor::run_step(const StepView& step, float* logits, const SamplingView* sampling,
                        const SampleOut* samples) {
  const bool bf16 = kind_ == Kind::kBf16 || (kind_ == Kind::kMixed && step.of_prompts);
  context_.products = bf16 ? Products::kBf16 : Products::kInt8;
  lay_out_rows(std::max(step.num_tokens, step.num_rows), context_.products);
  pool_.linger(step.num_tokens <= kFewTokens ? kLingerOfFew : kLinger);
  context_.step = step;
  context_.logits = logits;
  context_.logits_width = output_width_;
  context_.sampling = sampling;
  context_.samples = samples;
  if (adapters_ != nullptr) {
    adapters_->prepare(step);
  } else {
    require(step.adapters == nullptr, "adapters are not enabled");
  }
  seal();
  std::fill(ends_.begin(), ends_.end(), TimePoint::min());
  const uint32_t tag = pool_.next_tag();
  for (size_t i = 0; i < program_.size(); ++i) {
    const int64_t items = program_[i]->prepare(context_);
    require(items <= Claims::kMostItems, "a region has too many items");
    claims_[i]->open(tag, items);
  }
  look_ahead();
  const TimePoint start = Clock::now();
  pool_.launch(job_);
  add_profile(start);
}

void Executor::run(const StepView& step, float* logits) {
  check(step);
  run_step(step, logits, nullptr, nullptr);
}

void Executor::run(const StepView& step, const SamplingView& sampling, const SampleOut& out) {
  check(step);
  require(step.num_rows <= max_rows_, "R is above max_rows");
  require(sampling.rows == step.num_rows, "the sampling batch has another number of rows than R");
  if (logits_.data() == nullptr) {
    logits_ = Arena(static_cast<size_t>(max_rows_ * output_width_) * sizeof(float));
    for (ThreadScratch& scratch : scratch_) {
      samplers_.push_back(std::make_unique<SamplerScratch>(output_width_));
      scratch.sampler = samplers_.back().get();
    }
    // With more rows than that each thread has rows of its own.
    for (int i = 0; pool_.size() > 1 && i < 2 * pool_.size(); ++i)
      scans_.emplace_back(output_width_);
  }
  run_step(step, reinterpret_cast<float*>(logits_.data()), &sampling, &out);
}

}  // namespace octavo
