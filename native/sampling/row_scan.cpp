#include "sampling/row_scan.h"

#include <algorithm>
#include <limits>

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLeastTemperature = 1e-30f;  // below it a quotient of normal numbers overflows
// Blocks of a piece of a scan.
constexpr int64_t kPieceBlocks = 256;

}  // namespace

bool penalises(const SamplingView& view, int64_t row) {
  return has(view.history_start, row) &&
         (view.repetition_penalty[row] != 1 || view.presence_penalty[row] != 0 ||
          view.frequency_penalty[row] != 0);
}

bool changes_logits(const SamplingView& view, int64_t row) {
  return view.mask != nullptr || has(view.bias_start, row) || has(view.banned_start, row) ||
         penalises(view, row);
}

Weighing weighing(const SamplingView& view, int64_t row, float peak) {
  return {peak, std::max(view.temperature[row], kLeastTemperature), view.min_p[row]};
}

RowScan::RowScan(int64_t vocab)
    : peaks_(static_cast<size_t>(pieces(vocab))),
      block_max_(new float[scan_blocks(vocab)]),
      most_(new float[scan_blocks(vocab)]),
      block_sum_(new double[scan_blocks(vocab)]) {}

int64_t RowScan::pieces(int64_t vocab) {
  return (scan_blocks(vocab) + kPieceBlocks - 1) / kPieceBlocks;
}

bool RowScan::looks(const SamplingView& view, int64_t row) {
  return !changes_logits(view, row);
}

bool RowScan::weighs(const SamplingView& view, int64_t row, int64_t vocab) {
  const int64_t k = view.top_k[row];
  return looks(view, row) && view.temperature[row] > 0 && (k <= 0 || k >= vocab);
}

void RowScan::look(const float* logits, int64_t vocab, int64_t piece) {
  const int64_t block = piece * kPieceBlocks, begin = block * kScanBlock;
  const int64_t count = std::min(kPieceBlocks * kScanBlock, vocab - begin);
  peaks_[piece] = find_peak(logits + begin, count, block_max_.get() + block);
  peaks_[piece].index += begin;
}

void RowScan::weigh(const float* logits, int64_t vocab, const SamplingView& view, int64_t row,
                    int64_t piece) {
  const Peak all = peak();
  if (!all.finite || all.value == -kInf) return;  // nothing is drawn
  const Weighing how = weighing(view, row, all.value);
  const int64_t block = piece * kPieceBlocks, begin = block * kScanBlock;
  const int64_t count = std::min(kPieceBlocks * kScanBlock, vocab - begin);
  float* most = most_.get() + block;
  largest_weights(block_max_.get() + block, scan_blocks(count), how, most);
  sum_weights(logits + begin, count, how, most, block_sum_.get() + block);
}

Peak RowScan::peak() const {
  Peak all = peaks_[0];
  for (const Peak& p : peaks_) {
    const bool finite = all.finite && p.finite;
    if (p.value > all.value) all = p;
    all.finite = finite;
  }
  return all;
}

}  // namespace octavo
