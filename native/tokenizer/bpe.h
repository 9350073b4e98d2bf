// BPE by ranked merges (Sennrich et al. 2016), as GPT-2 and its descendants use it. Words come in
// already cut and spelled; what alphabet they are spelled in is not known here.
#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/pieces.h"

namespace octavo {

// Immutable after construction: any number of threads may encode at once.
class BpeEncoder {
 public:
  struct Options {
    bool whole_words = false;  // a word that is a piece is taken as it is, whatever the merges say
    int32_t unknown_id = -1;   // stands for characters that are neither a piece nor bytes
  };

  // pieces[i] and types[i] describe token i. merges are "left right", best first; one whose parts
  // or result are no pieces is left out.
  BpeEncoder(std::shared_ptr<const Texts> pieces, const Texts& merges,
             const std::vector<int32_t>& types, Options options);
  BpeEncoder(const BpeEncoder&) = delete;  // the tables point into pieces_
  BpeEncoder& operator=(const BpeEncoder&) = delete;

  const SpecialPieces& special() const { return special_; }
  // Appends the ids of one word.
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint64_t pair = 0;    // left id << 32 | right id
    uint32_t rank = 0;    // lower is better
    int32_t result = -1;  // -1: an empty slot
  };
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    int32_t prev, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t left;   // index of the left symbol
    uint64_t pair;  // stale if the two symbols are others by now
    int32_t result;
    bool operator<(const Candidate& other) const {
      return rank > other.rank || (rank == other.rank && left > other.left);
    }
  };

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15ull >> 20) & mask_; }
  // A merge that is being added: its texts, and what they are.
  struct Asked {
    std::string_view left, right;
    uint32_t left_hash, right_hash;
  };

  bool insert_pieces();  // whether no two are equal
  Asked ask_for(std::string_view merge) const;
  // guess: the piece that is tried first as the result, then the one after the result; behind all
  // pieces it stays and none is.
  void add_merge(const Asked& merge, uint32_t rank, size_t& guess);
  int32_t find_result(const Asked& merge, size_t& guess) const;
  const Merge* find_merge(uint64_t pair) const;
  void spell(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge_all(std::vector<Symbol>& symbols) const;

  std::shared_ptr<const Texts> owner_;
  const Texts& pieces_;
  PieceTable table_;
  SpecialPieces special_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<Merge> merges_;
  size_t mask_ = 0;
  Options options_;
};

}  // namespace octavo
