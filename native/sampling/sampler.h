// Draws one token from each row of logits. Rows are independent: one thread computes a row from
// start to end in one fixed order, so the result has the same bits whatever the batch, the thread
// or the instruction set. Logits are only read, never written.
//
// Order of a row: bias, allowed mask, banned ids -> repetition, frequency, presence penalty ->
// temperature -> min_p -> top_k -> top_p -> draw. Ties are broken by the lower id everywhere.
// Log-probabilities are the log-softmax of the logits as they came.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sampling/scan.h"

namespace octavo {

// Ids that a row's result may hold instead of a token.
enum RowError : int32_t {
  kNotFinite = -1,       // a logit is NaN or +inf
  kNothingAllowed = -2,  // every token is masked, banned or -inf
  kIdOutOfRange = -3,    // a history, bias, banned or listed id is not in [0, vocab)
};

// Borrowed arrays, as SamplingBatch in decoding/batch.py describes them. R = rows.
struct SamplingView {
  int64_t rows = 0;
  const float* temperature = nullptr;
  const int32_t* top_k = nullptr;
  const float* top_p = nullptr;
  const float* min_p = nullptr;
  const float* repetition_penalty = nullptr;
  const float* presence_penalty = nullptr;
  const float* frequency_penalty = nullptr;
  const uint64_t* seed = nullptr;
  const int32_t* counter = nullptr;
  const int32_t* num_logprobs = nullptr;
  const int32_t* history = nullptr;
  const int32_t* history_start = nullptr;  // [R + 1], like every *_start
  const int32_t* prompt_count = nullptr;
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  const int32_t* bias_start = nullptr;
  const int32_t* banned = nullptr;
  const int32_t* banned_start = nullptr;
  const int32_t* listed = nullptr;  // ids whose logprobs are wanted besides
  const int32_t* listed_start = nullptr;
  const uint32_t* mask = nullptr;  // [R, mask_words], bit i % 32 of word i / 32; null = all allowed
  int64_t mask_words = 0;
};

// Where results go; row r writes only its own places. top_* are [R, top_n], padded with -1 / -inf,
// listed_logprobs is [R, listed_n], padded with -inf.
struct SampleOut {
  int32_t* ids = nullptr;  // a token, or a RowError
  float* logprobs = nullptr;
  int32_t* ranks = nullptr;
  int64_t top_n = 0;
  int32_t* top_ids = nullptr;
  float* top_logprobs = nullptr;
  int64_t listed_n = 0;
  float* listed_logprobs = nullptr;
};

// What is to be known of a row of logits before its token is drawn: a large vocabulary's maxima,
// then its weights, found piece by piece on whatever threads there are, so that one row does not
// wait for one thread. Of a row that changes its logits (bias, mask, penalties) there is nothing.
class RowScan {
 public:
  explicit RowScan(int64_t vocab);

  static int64_t pieces(int64_t vocab);
  // Whether the pieces of a row are to be looked at, and then to be weighed.
  static bool looks(const SamplingView& view, int64_t row);
  static bool weighs(const SamplingView& view, int64_t row, int64_t vocab);

  // First all pieces of a row are looked at, then all are weighed.
  void look(const float* logits, int64_t vocab, int64_t piece);
  void weigh(const float* logits, int64_t vocab, const SamplingView& view, int64_t row,
             int64_t piece);

 private:
  friend class RowSampler;
  Peak peak() const;

  std::vector<Peak> peaks_;              // of the pieces
  std::unique_ptr<float[]> block_max_;   // [blocks] largest logit
  std::unique_ptr<float[]> most_;        // [blocks] its weight
  std::unique_ptr<double[]> block_sum_;  // [blocks] of weights
};

// One thread's working memory, about 16 bytes per token of the vocabulary. Allocates only here.
class SamplerScratch {
 public:
  explicit SamplerScratch(int64_t vocab);

 private:
  friend class RowSampler;
  int64_t vocab_;
  std::unique_ptr<float[]> logits_;      // adjusted copy, only for rows that change logits
  std::unique_ptr<float[]> candidates_;  // weights that may survive top-k and top-p, in id order
  std::unique_ptr<int32_t[]> ids_;       // their ids
  std::unique_ptr<float[]> work_;        // a copy to partition
  std::unique_ptr<uint32_t[]> marks_;    // [vocab], all zero between rows
  std::unique_ptr<float[]> block_max_;   // [blocks] largest logit
  std::unique_ptr<float[]> most_;        // [blocks] its weight
  std::unique_ptr<double[]> block_sum_;  // [blocks]
};

// Samples row `row` from logits[vocab]. scratch was made for at least this vocabulary. scan: what
// was found out about the row, or null; the result is the same. Safe to call from several threads
// with different rows and scratches.
void sample_row(const float* logits, int64_t vocab, const SamplingView& view, int64_t row,
                const SampleOut& out, SamplerScratch& scratch,
                const RowScan* scan = nullptr) noexcept;

}  // namespace octavo
