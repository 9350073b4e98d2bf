// Rows of a step sorted by expert: which rows an expert gets, and where their intermediate results
// lie. One scratch buffer of the arena holds it all.
//
// A pair is (row, rank): the expert that a row chose in this place. Pairs are sorted by expert, and
// within one by row, so that an expert's rows are adjacent. Each expert's quantized rows are laid
// out on their own (QuantizedRows::in), in tiles that come out even for their number.
#pragma once

#include <cstdint>

#include "runtime/step.h"

namespace octavo {

// Sizes of one mixture. rows: the most rows of a step.
struct ExpertSizes {
  int64_t rows;
  int64_t num_experts;
  int64_t top_k;
  int64_t features;       // D: of a row
  int64_t hidden;         // F: of an expert
  bool quantized_in;      // gate and up read int8 rows
  bool quantized_hidden;  // down does
  Products largest;       // of the kinds of products that steps may have, the one of larger rows

  int64_t pairs() const { return rows * top_k; }
  // The most experts that n pairs can fall to.
  int64_t most_active(int64_t n) const { return n < num_experts ? n : num_experts; }
};

// The rows of one expert that has any.
struct ExpertRows {
  int32_t expert;
  int32_t first;     // of its pairs in sorted order
  int32_t count;     // of its pairs
  size_t in_at;      // bytes from the start of the gathered rows
  size_t hidden_at;  // bytes from the start of the hidden rows
};

// A view of the scratch memory.
struct ExpertScratch {
  int32_t* num_active;  // one number
  ExpertRows* active;   // [most_active(pairs)], by expert
  int32_t* pair_of;     // [pairs] sorted place -> row * top_k + rank
  int32_t* place_of;    // [pairs] row * top_k + rank -> sorted place
  uint8_t* hidden;      // activated rows of all experts
  uint8_t* in;          // gathered rows
  float* out;           // [pairs][features], sorted; where `in` was, which is read no more

  ExpertScratch(const ExpertSizes& sizes, uint8_t* memory);
  static size_t bytes(const ExpertSizes& sizes);
};

// Bytes of n rows of k columns of one expert.
size_t expert_row_bytes(int64_t n, int64_t k, bool quantized, Products products);

// Sorts the pairs of `rows` rows: routes is [rows][2 * top_k], ids and then weights. An id that is
// no expert's is taken for 0.
void sort_by_expert(const ExpertSizes& sizes, const float* routes, int64_t rows, Products products,
                    ExpertScratch& scratch);

}  // namespace octavo
