#include "runtime/adapters.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr int64_t kAddRows = 16;   // rows that are added to at once
constexpr int64_t kDownRows = 32;  // most rows of one item of x A^T
constexpr size_t kAlign = 64;

size_t aligned(size_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

[[noreturn]] void refuse(int matrix, const std::string& what) {
  throw std::invalid_argument("adapters: matrix " + std::to_string(matrix) + ": " + what);
}

PanelMatrix planned(const RawLowRank& raw, SourceType type, int64_t n, int64_t k, size_t bytes) {
  const PanelMatrix m = plan_panels(type, n, k, false, false);
  if (!is_float(m.layout)) refuse(raw.matrix, "expected floats");
  if (bytes != source_row_bytes(type, k) * static_cast<size_t>(n)) {
    refuse(raw.matrix, "the bytes do not match the shape");
  }
  return m;
}

void append(std::vector<AdapterRun>& runs, int64_t begin, int64_t end, const Adapter* adapter) {
  if (adapter == nullptr) return;
  if (!runs.empty() && runs.back().end == begin && runs.back().adapter == adapter) {
    runs.back().end = end;
  } else {
    runs.push_back({begin, end, adapter});
  }
}

class LowRankDown : public Instruction {
 public:
  explicit LowRankDown(LowRankSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "adapters"; }

  int64_t prepare(RunContext& ctx) override {
    items_.clear();
    for (const AdapterRun& run : ctx.adapters->runs(s_.rows)) {
      for (size_t place = 0; place < s_.matrices.size(); ++place) {
        const LowRank* change = run.adapter->of(s_.matrices[place]);
        if (change == nullptr) continue;
        const int64_t k = change->whole ? change->up.k : change->down.k;
        const int64_t fit = kTileFloats / std::max<int64_t>(k, 1);
        const int64_t step = std::clamp<int64_t>(fit, 1, kDownRows);
        for (int64_t b = run.begin; b < run.end; b += step) {
          items_.push_back({change, static_cast<int64_t>(place), b, std::min(b + step, run.end)});
        }
      }
    }
    return static_cast<int64_t>(items_.size());
  }

  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Item& i = items_[item];
    const PanelMatrix& a = i.change->down;
    const int64_t k = i.change->whole ? i.change->up.k : a.k;
    const Buffer& in = ctx.buffer(s_.in);
    const int64_t rows = i.end - i.begin;
    const float* x = scratch.tile;
    int64_t ldx = k;
    if (in.f32 != nullptr) {
      x = in.f32 + i.begin * in.width;
      ldx = in.width;
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        in.q8.read_row(i.begin + r, scratch.tile + r * k);
      }
    }
    float* out = ctx.adapters->down(i.begin, i.place);
    const int64_t ld = ctx.adapters->width();
    if (i.change->whole) {
      for (int64_t r = 0; r < rows; ++r) std::copy_n(x + r * ldx, k, out + r * ld);
    } else {
      linear_f32(a, x, ldx, 0, rows, 0, a.num_panels, out, ld);
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < (i.change->whole ? k : a.n); ++c) out[r * ld + c] *= i.change->scale;
    }
  }

 private:
  struct Item {
    const LowRank* change;
    int64_t place;
    int64_t begin;  // rows
    int64_t end;
  };

  LowRankSpec s_;
  std::vector<Item> items_;
};

}  // namespace

Adapters::Adapters(int64_t max_rows, int64_t max_rank, int64_t places)
    : max_rank_(max_rank), width_(max_rank * places) {
  memory_ = Arena(aligned(static_cast<size_t>(max_rows * width_) * sizeof(float)));
}

void Adapters::load(int number, const std::vector<RawLowRank>& changes,
                    const std::vector<PanelMatrix>& matrices) {
  if (loaded_.count(number) != 0) {
    throw std::invalid_argument("adapters: number " + std::to_string(number) + " is taken");
  }
  auto adapter = std::make_unique<Adapter>();
  size_t bytes = 0;
  for (const RawLowRank& raw : changes) {
    if (raw.matrix < 0 || static_cast<size_t>(raw.matrix) >= matrices.size()) {
      refuse(raw.matrix, "no such matrix");
    }
    const PanelMatrix& w = matrices[static_cast<size_t>(raw.matrix)];
    if (raw.rank < 1 || raw.rank > max_rank_) {
      refuse(raw.matrix,
             "rank " + std::to_string(raw.rank) + "; expected 1 to " + std::to_string(max_rank_));
    }
    if (w.k > kTileFloats) refuse(raw.matrix, "has too many columns");
    LowRank change;
    change.whole = raw.down_bytes == 0;
    if (change.whole) {
      if (raw.rank != w.k) refuse(raw.matrix, "expected a column for each of its own");
    } else {
      change.down = planned(raw, raw.down_type, raw.rank, w.k, raw.down_bytes);
    }
    change.up = planned(raw, raw.up_type, w.n, raw.rank, raw.up_bytes);
    change.scale = raw.scale;
    if (raw.gain_size != 0 && raw.gain_size != static_cast<size_t>(w.n)) {
      refuse(raw.matrix, "expected a gain for each row");
    }
    change.gain.assign(raw.gain, raw.gain + raw.gain_size);
    if (!adapter->changes.emplace(raw.matrix, change).second)
      refuse(raw.matrix, "is changed twice");
    if (!change.whole) bytes += aligned(change.down.size_bytes());
    bytes += aligned(change.up.size_bytes());
  }
  adapter->memory = Arena(std::max(bytes, kAlign));
  uint8_t* at = adapter->memory.data();
  for (const RawLowRank& raw : changes) {
    LowRank& change = adapter->changes.at(raw.matrix);
    for (const auto& [m, rows] : {std::pair{&change.down, raw.down}, {&change.up, raw.up}}) {
      if (m == &change.down && change.whole) continue;
      pack_panels(*m, rows, 0, m->num_panels, at);
      m->data = at;
      at += aligned(m->size_bytes());
    }
  }
  loaded_.emplace(number, std::move(adapter));
}

void Adapters::prepare(const StepView& s) {
  token_runs_.clear();
  logit_runs_.clear();
  if (s.adapters == nullptr) return;
  std::vector<const Adapter*> of_row;
  bool any = false;
  for (int32_t q = 0; q < s.num_seqs; ++q) {
    const Adapter* adapter = nullptr;
    if (s.adapters[q] >= 0) {
      const auto found = loaded_.find(s.adapters[q]);
      if (found == loaded_.end()) throw std::invalid_argument("executor: an adapter is not loaded");
      adapter = found->second.get();
      any = true;
    }
    append(token_runs_, s.query_start[q], s.query_start[q + 1], adapter);
    of_row.resize(static_cast<size_t>(s.query_start[q + 1]), adapter);
  }
  if (!any) return;
  for (int32_t r = 0; r < s.num_rows; ++r) {
    append(logit_runs_, r, r + 1, of_row[static_cast<size_t>(s.logit_rows[r])]);
  }
}

void Adapters::add(Rows kind, int64_t place, int matrix, int64_t begin, int64_t end, float* out,
                   int64_t ld) const {
  for (const AdapterRun& run : runs(kind)) {
    const LowRank* change = run.adapter->of(matrix);
    if (change == nullptr) continue;
    for (int64_t b = run.begin; b < run.end; b += kAddRows) {
      const int64_t rows = std::min(run.end - b, kAddRows);
      for (int64_t p = begin; p < end; ++p) {
        float tile[kAddRows * kPanelRows];
        linear_f32(change->up, down(b, place), width_, 0, rows, p, p + 1, tile - p * kPanelRows,
                   kPanelRows);
        const int64_t n = std::min<int64_t>(kPanelRows, change->up.n - p * kPanelRows);
        float* to = out + b * ld + (p - begin) * kPanelRows;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < n; ++c) {
            const float added = tile[r * kPanelRows + c];
            to[r * ld + c] = change->whole ? added : to[r * ld + c] + added;
          }
        }
        if (change->gain.empty()) continue;
        const float* gain = change->gain.data() + p * kPanelRows;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < n; ++c) to[r * ld + c] *= gain[c];
        }
      }
    }
  }
}

std::unique_ptr<Instruction> make(LowRankSpec spec) {
  return std::make_unique<LowRankDown>(std::move(spec));
}

}  // namespace octavo
