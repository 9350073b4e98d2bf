// SentencePiece-style BPE: pairs are merged by the score of the piece they form, best first.
//
// The vocabulary comes from a model file and is not trusted; every index is derived here.
// Algorithm: Kudo and Richardson 2018 (SentencePiece), section 3, model type BPE.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// What a piece is allowed to do. Values are GGUF's tokenizer.ggml.token_type.
enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Open-addressing hash table from text to id. Keys live in the owner's blob.
class PieceTable {
 public:
  // Room for `count` keys without growing.
  void reserve(size_t count);
  // Keeps the first id of a repeated key.
  void insert(std::string_view key, int32_t id);
  // -1 if absent.
  int32_t find(std::string_view key) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    const char* data = nullptr;
    uint32_t size = 0;
  };
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// Immutable after construction: any number of threads may encode at once.
class SpmEncoder {
 public:
  struct Options {
    bool space_prefix = true;  // a space before text at the start and after a special token
    bool strip_right = false;  // special tokens swallow the blanks after them (Phi-3)
    int32_t unknown_id = -1;   // stands for characters that are neither a piece nor bytes
  };

  // pieces[i], scores[i] and types[i] describe token i; equal sizes are the caller's duty.
  SpmEncoder(const std::vector<std::string_view>& pieces, std::vector<float> scores,
             const std::vector<int32_t>& types, Options options);

  // UTF-8 text to ids. User-defined pieces are always cut out of the text first (longest match,
  // left to right); control and unknown pieces only if parse_special.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const;

 private:
  struct Symbol {
    uint32_t begin, size;  // bytes in the normalized text; size 0: merged into its left neighbour
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

  // The longest special piece at text[at:], as (id, size); id -1 if there is none.
  std::pair<int32_t, size_t> match_special(std::string_view text, size_t at,
                                           bool parse_special) const;
  void encode_fragment(std::string_view fragment, bool with_space, std::vector<int32_t>& ids) const;
  void emit(std::string_view symbol, std::vector<int32_t>& ids) const;

  std::string blob_;  // all pieces, one after the other; table keys point into it
  std::vector<float> scores_;
  std::vector<bool> is_user_defined_;
  PieceTable mergeable_;  // normal, user-defined and unused pieces
  PieceTable special_;    // user-defined, control and unknown pieces
  std::array<std::vector<uint32_t>, 256> special_sizes_;  // by first byte, longest first
  std::array<int32_t, 256> byte_ids_;
  size_t max_piece_size_ = 0;
  Options options_;
};

}  // namespace octavo
