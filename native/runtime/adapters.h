// Low-rank adapters (LoRA, Hu et al. 2021): for rows of a step that ask for one, a product gives
// x W^T + scale (x A^T) B^T. A is [rank, k], B [n, rank]; both are float panels. Each output may
// then be multiplied by a gain of its own (DoRA, Liu et al. 2024).
//
// x A^T is computed once, by an instruction of its own before the product; the product adds the
// rest to its rows before anything else is done with them. A row's sums never depend on the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/arena.h"
#include "runtime/step.h"

namespace octavo {

// One weight's change: down is A, up is B. whole: there is no A, and B [n, k] replaces W. gain:
// [n], or empty for 1.
struct LowRank {
  PanelMatrix down;
  PanelMatrix up;
  float scale = 1.0f;
  bool whole = false;
  std::vector<float> gain;
};

// By the matrix that is changed.
struct Adapter {
  std::unordered_map<int, LowRank> changes;
  Arena memory;

  const LowRank* of(int matrix) const {
    const auto found = changes.find(matrix);
    return found == changes.end() ? nullptr : &found->second;
  }
};

// Adjacent rows of a step with one adapter.
struct AdapterRun {
  int64_t begin;
  int64_t end;
  const Adapter* adapter;
};

// A change to load, as the file has it. down_bytes 0: there is no A, and the rank is k.
struct RawLowRank {
  int matrix;
  int64_t rank;
  SourceType down_type;
  const uint8_t* down;
  size_t down_bytes;
  SourceType up_type;
  const uint8_t* up;
  size_t up_bytes;
  float scale;
  const float* gain;  // [gain_size]; none where that is 0
  size_t gain_size;
};

class Adapters {
 public:
  // places: products that one instruction computes at most.
  Adapters(int64_t max_rows, int64_t max_rank, int64_t places);

  int64_t max_rank() const { return max_rank_; }
  size_t bytes() const { return memory_.size(); }

  // Throws std::invalid_argument if a change does not fit its matrix, or the number is taken.
  void load(int number, const std::vector<RawLowRank>& changes,
            const std::vector<PanelMatrix>& matrices);
  // An unknown number is ignored.
  void unload(int number) { loaded_.erase(number); }

  // Before a step: which rows have which adapter. Throws if a number is not loaded.
  void prepare(const StepView& step);
  const std::vector<AdapterRun>& runs(Rows kind) const {
    return kind == Rows::kTokens ? token_runs_ : logit_runs_;
  }

  // x A^T of row `row` for the product at `place`: room for max_rank numbers.
  float* down(int64_t row, int64_t place) const {
    return reinterpret_cast<float*>(memory_.data()) + row * width_ + place * max_rank_;
  }
  int64_t width() const { return width_; }

  // Adds what adapters change in panels [begin, end) of a matrix. out: row 0, the first column of
  // panel begin.
  void add(Rows kind, int64_t place, int matrix, int64_t begin, int64_t end, float* out,
           int64_t ld) const;

 private:
  int64_t max_rank_;
  int64_t width_;
  Arena memory_;
  std::map<int, std::unique_ptr<Adapter>> loaded_;
  std::vector<AdapterRun> token_runs_;
  std::vector<AdapterRun> logit_runs_;
};

// x A^T of the products of these matrices, whose common input is `in`.
struct LowRankSpec {
  Rows rows;
  int in;
  std::vector<int> matrices;  // the place of each is its index
};
std::unique_ptr<Instruction> make(LowRankSpec spec);

}  // namespace octavo
