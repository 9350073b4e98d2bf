// SentencePiece-style BPE: pairs are merged by the score of the piece they form, best first.
//
// Algorithm: Kudo and Richardson 2018 (SentencePiece), section 3, model type BPE.
#pragma once

#include <memory>

#include "tokenizer/pieces.h"

namespace octavo {

// Immutable after construction: any number of threads may encode at once.
class SpmEncoder {
 public:
  struct Options {
    bool space_prefix = true;  // a space before text at the start and after a special token
    bool strip_right = false;  // special tokens swallow the blanks after them (Phi-3)
    int32_t unknown_id = -1;   // stands for characters that are neither a piece nor bytes
  };

  // pieces[i], scores[i] and types[i] describe token i; equal sizes are the caller's duty.
  SpmEncoder(std::shared_ptr<const Texts> pieces, std::vector<float> scores,
             const std::vector<int32_t>& types, Options options);
  SpmEncoder(const SpmEncoder&) = delete;  // the tables point into pieces_
  SpmEncoder& operator=(const SpmEncoder&) = delete;

  // UTF-8 text to ids.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const;

 private:
  struct Symbol {
    uint32_t begin, size;  // bytes in the text; size 0: merged into its left neighbour
    int32_t prev, next;
  };
  struct Bigram {
    float score;
    int32_t left, right;
    uint32_t size;  // bytes; stale if the two symbols have grown or gone since
    bool operator<(const Bigram& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  void encode_fragment(std::string_view fragment, bool with_space, std::vector<int32_t>& ids) const;
  void merge(std::string_view text, std::vector<Symbol>& symbols) const;
  void emit(std::string_view symbol, std::vector<int32_t>& ids) const;

  std::shared_ptr<const Texts> owner_;
  const Texts& pieces_;
  std::vector<float> scores_;
  PieceTable mergeable_;  // normal, user-defined and unused pieces
  SpecialPieces special_;
  std::array<int32_t, 256> byte_ids_;
  size_t max_piece_size_ = 0;
  Options options_;
};

}  // namespace octavo
