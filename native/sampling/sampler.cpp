#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sampling/buckets.h"
#include "sampling/philox.h"
#include "sampling/row_scan.h"
#include "sampling/scan.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

SamplerScratch::SamplerScratch(int64_t vocab)
    : vocab_(vocab),
      logits_(new float[vocab]),
      candidates_(new float[vocab + kScanBlock]),
      ids_(new int32_t[vocab + kScanBlock]),
      work_(new float[vocab]),
      marks_(new uint32_t[vocab]()),
      block_max_(new float[scan_blocks(vocab)]),
      most_(new float[scan_blocks(vocab)]),
      block_sum_(new double[scan_blocks(vocab)]) {}

// The work on one row. Methods run in the order in which sample() calls them.
class RowSampler {
 public:
  RowSampler(const float* logits, int64_t vocab, const SamplingView& view, int64_t row,
             SamplerScratch& scratch, const RowScan* scan)
      : raw_(logits),
        x_(logits),
        vocab_(vocab),
        view_(view),
        row_(row),
        s_(scratch),
        scan_(scan != nullptr && RowScan::looks(view, row) ? scan : nullptr),
        weighed_(scan_ != nullptr && RowScan::weighs(view, row, vocab)) {}

  int32_t sample() {
    if (!in_vocab(view_.listed, view_.listed_start)) return kIdOutOfRange;
    Peak raw = scan_ != nullptr ? scan_->peak() : find_peak(raw_, vocab_, s_.block_max_.get());
    raw_peak_ = raw.value;
    if (!raw.finite) return kNotFinite;
    if (changes_logits(view_, row_)) {
      if (!adjust()) return kIdOutOfRange;
      raw = find_peak(x_, vocab_, s_.block_max_.get());
      if (!raw.finite) return kNotFinite;
    }
    if (raw.value == -kInf) return kNothingAllowed;
    if (view_.temperature[row_] <= 0) return static_cast<int32_t>(raw.index);
    return draw(raw.value);
  }

  void report(int32_t token, const SampleOut& out) {
    double log_sum = std::log(sum_exp(raw_, vocab_, raw_peak_));
    auto logprob = [&](int64_t id) {
      return static_cast<float>(static_cast<double>(raw_[id]) - raw_peak_ - log_sum);
    };
    out.logprobs[row_] = logprob(token);
    out.ranks[row_] = static_cast<int32_t>(1 + count_before(raw_, vocab_, raw_[token], token));
    float* listed = out.listed_logprobs + row_ * out.listed_n;
    for (int32_t i = view_.listed_start[row_]; i < view_.listed_start[row_ + 1]; ++i) {
      *listed++ = logprob(view_.listed[i]);
    }
    int64_t wanted = std::min<int64_t>({view_.num_logprobs[row_], out.top_n, vocab_});
    if (wanted <= 0) return;
    best_raw(wanted);
    for (int64_t i = 0; i < wanted; ++i) {
      out.top_ids[row_ * out.top_n + i] = s_.ids_[i];
      out.top_logprobs[row_ * out.top_n + i] = logprob(s_.ids_[i]);
    }
  }

 private:
  // Whether the row's ids are all in [0, vocab).
  bool in_vocab(const int32_t* ids, const int32_t* start) const {
    return std::all_of(ids + start[row_], ids + start[row_ + 1],
                       [this](int32_t id) { return in_range(id); });
  }

  // What is known of each block.
  const float* block_max() const {
    return scan_ != nullptr ? scan_->block_max_.get() : s_.block_max_.get();
  }
  const float* most() const { return weighed_ ? scan_->most_.get() : s_.most_.get(); }
  const double* block_sum() const {
    return weighed_ ? scan_->block_sum_.get() : s_.block_sum_.get();
  }

  bool in_range(int32_t id) const { return id >= 0 && id < vocab_; }

  // Copies the row and applies bias, mask, bans and penalties; x_ then points at the copy.
  bool adjust() {
    if (!in_vocab(view_.bias_ids, view_.bias_start)) return false;
    if (!in_vocab(view_.banned, view_.banned_start)) return false;
    std::copy(raw_, raw_ + vocab_, s_.logits_.get());
    x_ = s_.logits_.get();
    for (int32_t i = view_.bias_start[row_]; i < view_.bias_start[row_ + 1]; ++i) {
      s_.logits_[view_.bias_ids[i]] += view_.bias_values[i];
    }
    if (view_.mask != nullptr) apply_mask();
    for (int32_t i = view_.banned_start[row_]; i < view_.banned_start[row_ + 1]; ++i) {
      s_.logits_[view_.banned[i]] = -kInf;
    }
    return !penalises(view_, row_) || apply_penalties();
  }

  void apply_mask() {
    const uint32_t* words = view_.mask + row_ * view_.mask_words;
    for (int64_t begin = 0; begin < vocab_; begin += 32) {
      uint32_t word = words[begin / 32];
      if (word == 0xFFFFFFFFu) continue;
      int64_t end = std::min(begin + 32, vocab_);
      for (int64_t i = begin; i < end; ++i) {
        if ((word >> (i - begin) & 1) == 0) s_.logits_[i] = -kInf;
      }
    }
  }

  // marks_[id] = 1 (seen) + 2 * (times in the output); distinct ids are listed in ids_.
  bool apply_penalties() {
    const int32_t* begin = view_.history + view_.history_start[row_];
    const int32_t* end = view_.history + view_.history_start[row_ + 1];
    const int32_t* output = begin + view_.prompt_count[row_];
    int64_t distinct = 0;
    bool valid = true;
    for (const int32_t* p = begin; p < end && valid; ++p) {
      valid = in_range(*p);
      if (!valid) break;
      uint32_t& mark = s_.marks_[*p];
      if (mark == 0) {
        mark = 1;
        s_.ids_[distinct++] = *p;
      }
      if (p >= output) mark += 2;
    }
    for (int64_t i = 0; i < distinct; ++i) {
      int32_t id = s_.ids_[i];
      penalise(s_.logits_[id], s_.marks_[id] >> 1);
      s_.marks_[id] = 0;
    }
    return valid;
  }

  void penalise(float& x, uint32_t times) const {
    float repetition = view_.repetition_penalty[row_];
    x = x > 0 ? x / repetition : x * repetition;
    x -= view_.frequency_penalty[row_] * static_cast<float>(times);
    if (times > 0) x -= view_.presence_penalty[row_];
  }

  int32_t draw(float peak) {
    how_ = weighing(view_, row_, peak);
    if (!weighed_) largest_weights(block_max(), scan_blocks(vocab_), how_, s_.most_.get());
    double uniform = philox_uniform(view_.seed[row_], static_cast<uint32_t>(view_.counter[row_]));
    int64_t k = view_.top_k[row_];
    double p = view_.top_p[row_];
    if (k > 0 && k < vocab_) {
      gather(lower_bound_of_top(most(), scan_blocks(vocab_), k, s_.work_.get()));
      cut_top_k(k);
      if (p < 1) cut_top_p(p * candidate_sum());
      return draw_from_candidates(uniform);
    }
    double total =
        weighed_ ? sum_of_blocks() : sum_weights(x_, vocab_, how_, most(), s_.block_sum_.get());
    if (p >= 1) return draw_from_blocks(uniform * total);
    gather_top_p(p, total);
    cut_top_p(p * total);
    return draw_from_candidates(uniform);
  }

  // As sum_weights adds them.
  double sum_of_blocks() const {
    double total = 0;
    for (int64_t b = 0; b < scan_blocks(vocab_); ++b) total += block_sum()[b];
    return total;
  }

  // Candidates that hold the nucleus: all weights above a bound. All weights below
  // (1 - p) * total / vocab together are less than (1 - p) * total; a little slack covers the
  // rounding of the sum. Mostly few tokens share the nucleus and a higher bound will do.
  void gather_top_p(double p, double total) {
    const float lowest = static_cast<float>((1 - p) * total / static_cast<double>(vocab_) * 0.999);
    const float guess = bound_of_tail((1 - p) * total / 2);
    if (guess > lowest) {
      gather(guess);
      if (candidate_sum() > p * total * (1 + 1e-9)) return;
    }
    gather(lowest);
  }

  // A bound such that the weights below it sum to about `tail`, judged by one block in sixteen.
  float bound_of_tail(double tail) {
    constexpr int64_t kEvery = 16;
    double sums[kWeightBuckets] = {};
    for (int64_t b = 0; b < scan_blocks(vocab_); b += kEvery) {
      const int64_t begin = b * kScanBlock;
      float w[kScanBlock];
      block_weights(x_ + begin, std::min(kScanBlock, vocab_ - begin), how_, w);
      for (float weight : w) sums[weight_bucket(weight)] += weight;
    }
    double below = 0;
    int32_t bucket = 0;
    while (bucket + 1 < kWeightBuckets && (below += sums[bucket]) * kEvery <= tail) ++bucket;
    return weight_of_bucket(bucket);
  }

  // Candidates: positive weights >= bound, in id order.
  void gather(float bound) {
    count_ = 0;
    bound = std::max(bound, std::numeric_limits<float>::min());
    for (int64_t b = 0; b < scan_blocks(vocab_); ++b) {
      if (most()[b] * kSlack < bound) continue;
      const int64_t begin = b * kScanBlock;
      float w[kScanBlock];
      block_weights(x_ + begin, std::min(kScanBlock, vocab_ - begin), how_, w);
      for (int64_t i = 0; i < kScanBlock; i += kRun) {
        if (!any_reaches(w + i, bound)) continue;
        for (int64_t j = i; j < i + kRun; ++j) {
          s_.candidates_[count_] = w[j];
          s_.ids_[count_] = static_cast<int32_t>(begin + j);
          count_ += w[j] >= bound;
        }
      }
    }
  }

  // Candidates are few: most runs of weights hold none.
  static constexpr int64_t kRun = 8;
  static bool any_reaches(const float* w, float bound) {
    int reaches = 0;
    for (int64_t j = 0; j < kRun; ++j) reaches |= w[j] >= bound;
    return reaches != 0;
  }

  // Keeps the `keep` first candidates by (weight descending, id ascending); the last has weight t.
  void shrink(float t, int64_t keep) {
    int64_t larger = 0;
    for (int64_t i = 0; i < count_; ++i) larger += s_.candidates_[i] > t;
    int64_t ties = keep - larger, kept = 0;
    for (int64_t i = 0; i < count_; ++i) {
      float w = s_.candidates_[i];
      if (w < t || (w == t && ties-- <= 0)) continue;
      s_.candidates_[kept] = w;
      s_.ids_[kept++] = s_.ids_[i];
    }
    count_ = kept;
  }

  void cut_top_k(int64_t k) {
    if (count_ <= k) return;
    float* work = copy_candidates();
    std::nth_element(work, work + (k - 1), work + count_, std::greater<float>());
    shrink(work[k - 1], k);
  }

  // Keeps the shortest prefix, by descending weight, whose sum reaches target. Buckets of weights
  // find the range that holds its end; only that range is put in order.
  void cut_top_p(double target) {
    double sums[kWeightBuckets] = {};
    int64_t counts[kWeightBuckets] = {};
    for (int64_t i = 0; i < count_; ++i) {
      int32_t bucket = weight_bucket(s_.candidates_[i]);
      sums[bucket] += s_.candidates_[i];
      ++counts[bucket];
    }
    double before = 0;  // sum and number of the weights in higher buckets
    int64_t larger = 0;
    int32_t bucket = kWeightBuckets - 1;
    for (; bucket > 0 && before + sums[bucket] < target; --bucket) {
      before += sums[bucket];
      larger += counts[bucket];
    }
    int64_t size = 0;
    for (int64_t i = 0; i < count_; ++i) {
      s_.work_[size] = s_.candidates_[i];
      size += weight_bucket(s_.candidates_[i]) == bucket;
    }
    if (size == 0) return;  // rounding only: the sum of all fell short of target
    int64_t last = end_of_prefix(s_.work_.get(), size, before, target);
    shrink(s_.work_[last], larger + last + 1);
  }

  // Partly sorts work[0, size) downwards and returns the index at which the running sum, starting
  // from `before`, reaches target; the last index if it never does.
  static int64_t end_of_prefix(float* work, int64_t size, double before, double target) {
    int64_t begin = 0, end = size;
    while (end - begin > 32) {
      int64_t middle = begin + (end - begin) / 2;
      std::nth_element(work + begin, work + middle, work + end, std::greater<float>());
      double sum = before;
      for (int64_t i = begin; i < middle; ++i) sum += work[i];
      if (sum >= target) {
        end = middle;
      } else {
        begin = middle;
        before = sum;
      }
    }
    std::sort(work + begin, work + end, std::greater<float>());
    while (begin + 1 < end && (before += work[begin]) < target) ++begin;
    return begin;
  }

  float* copy_candidates() {
    std::copy(s_.candidates_.get(), s_.candidates_.get() + count_, s_.work_.get());
    return s_.work_.get();
  }

  double candidate_sum() const {
    double sum = 0;
    for (int64_t i = 0; i < count_; ++i) sum += s_.candidates_[i];
    return sum;
  }

  int32_t draw_from_candidates(double uniform) const {
    double total = candidate_sum(), sum = 0;
    for (int64_t i = 0; i < count_; ++i) {
      sum += s_.candidates_[i];
      if (sum > uniform * total) return s_.ids_[i];
    }
    return s_.ids_[count_ - 1];
  }

  // First token whose running sum exceeds target. The sums inside a block may round differently
  // from the block's own: then the block's last positive weight is taken.
  int32_t draw_from_blocks(double target) const {
    double sum = 0;
    int64_t chosen = 0;
    for (int64_t b = 0; b < scan_blocks(vocab_); ++b) {
      const double here = block_sum()[b];
      if (here <= 0) continue;
      chosen = b;
      if (sum + here > target) break;
      sum += here;
    }
    const int64_t begin = chosen * kScanBlock;
    float w[kScanBlock];
    block_weights(x_ + begin, std::min(kScanBlock, vocab_ - begin), how_, w);
    int64_t last = begin;
    for (int64_t i = 0; i < kScanBlock; ++i) {
      if (w[i] <= 0) continue;
      last = begin + i;
      sum += w[i];
      if (sum > target) break;
    }
    return static_cast<int32_t>(last);
  }

  // ids_[0, n) = the n largest raw logits, by (value descending, id ascending).
  void best_raw(int64_t n) {
    find_block_max(raw_, vocab_, s_.block_max_.get());
    int64_t blocks = scan_blocks(vocab_);
    float bound = lower_bound_of_top(s_.block_max_.get(), blocks, n, s_.work_.get());
    int64_t found = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      if (s_.block_max_[b] < bound) continue;
      int64_t end = std::min((b + 1) * kScanBlock, vocab_);
      for (int64_t i = b * kScanBlock; i < end; ++i) {
        if (raw_[i] >= bound) s_.ids_[found++] = static_cast<int32_t>(i);
      }
    }
    std::partial_sort(
        s_.ids_.get(), s_.ids_.get() + n, s_.ids_.get() + found,
        [this](int32_t a, int32_t b) { return raw_[a] != raw_[b] ? raw_[a] > raw_[b] : a < b; });
  }

  const float* raw_;
  const float* x_;  // raw_, or the adjusted copy
  int64_t vocab_;
  const SamplingView& view_;
  int64_t row_;
  SamplerScratch& s_;
  const RowScan* scan_;  // null: the row is looked at here
  bool weighed_;         // by the scan
  float raw_peak_ = 0;
  Weighing how_{};
  int64_t count_ = 0;  // candidates
};

void sample_row(const float* logits, int64_t vocab, const SamplingView& view, int64_t row,
                const SampleOut& out, SamplerScratch& scratch, const RowScan* scan) noexcept {
  out.logprobs[row] = 0;
  out.ranks[row] = 0;
  std::fill_n(out.top_ids + row * out.top_n, out.top_n, -1);
  std::fill_n(out.top_logprobs + row * out.top_n, out.top_n, -kInf);
  std::fill_n(out.listed_logprobs + row * out.listed_n, out.listed_n, -kInf);
  RowSampler sampler(logits, vocab, view, row, scratch, scan);
  int32_t token = sampler.sample();
  out.ids[row] = token;
  if (token >= 0 && view.num_logprobs[row] >= 0) sampler.report(token, out);
}

}  // namespace octavo
