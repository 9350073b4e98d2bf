// The last regions of every step: a token from each row, if the step samples. Few rows of a large
// vocabulary are looked at and weighed before by all threads.

#include "runtime/instructions.h"

namespace octavo {
namespace {

bool scans_rows(const RunContext& ctx) {
  return ctx.sampling != nullptr && RowScan::pieces(ctx.logits_width) > 1 &&
         ctx.sampling->rows <= static_cast<int64_t>(ctx.scans->size());
}

enum class ScanStage { kLook, kWeigh };

class Scan : public Instruction {
 public:
  explicit Scan(ScanStage stage) : stage_(stage) {}
  const char* name() const override { return "sample"; }
  int64_t prepare(RunContext& ctx) override {
    rows_.clear();
    pieces_ = RowScan::pieces(ctx.logits_width);
    for (int64_t r = 0; scans_rows(ctx) && r < ctx.sampling->rows; ++r) {
      const bool wanted = stage_ == ScanStage::kLook
                              ? RowScan::looks(*ctx.sampling, r)
                              : RowScan::weighs(*ctx.sampling, r, ctx.logits_width);
      if (wanted) rows_.push_back(r);
    }
    return static_cast<int64_t>(rows_.size()) * pieces_;
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const int64_t row = rows_[static_cast<size_t>(item / pieces_)], piece = item % pieces_;
    const float* logits = ctx.logits + row * ctx.logits_width;
    RowScan& scan = (*ctx.scans)[static_cast<size_t>(row)];
    if (stage_ == ScanStage::kLook) {
      scan.look(logits, ctx.logits_width, piece);
    } else {
      scan.weigh(logits, ctx.logits_width, *ctx.sampling, row, piece);
    }
  }

 private:
  ScanStage stage_;
  std::vector<int64_t> rows_;
  int64_t pieces_ = 1;  // of a row
};

class Sample : public Instruction {
 public:
  const char* name() const override { return "sample"; }
  int64_t prepare(RunContext& ctx) override {
    scans_ = scans_rows(ctx);
    return ctx.sampling ? ctx.sampling->rows : 0;
  }
  void run(RunContext& ctx, int64_t row, ThreadScratch& scratch) override {
    const RowScan* scan = scans_ ? &(*ctx.scans)[static_cast<size_t>(row)] : nullptr;
    sample_row(ctx.logits + row * ctx.logits_width, ctx.logits_width, *ctx.sampling, row,
               *ctx.samples, *scratch.sampler, scan);
  }

 private:
  bool scans_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Instruction>> make_sampling() {
  std::vector<std::unique_ptr<Instruction>> all;
  all.push_back(std::make_unique<Scan>(ScanStage::kLook));
  all.push_back(std::make_unique<Scan>(ScanStage::kWeigh));
  all.push_back(std::make_unique<Sample>());
  return all;
}

}  // namespace octavo
