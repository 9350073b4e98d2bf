// A vocabulary's pieces and the tables that find them by text.
//
// The vocabulary comes from a model file and is not trusted; every index is derived here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/texts.h"

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

// Text -> id by open addressing. `pieces` must outlive the table.
class PieceTable {
 public:
  // Room for `count` keys; more must not be inserted.
  PieceTable(const Texts& pieces, size_t count);
  static uint32_t hash_of(std::string_view key);
  // The first of equal pieces keeps its place; false where there was one.
  bool insert(int32_t id) { return insert(id, hash_of(pieces_[id])); }
  bool insert(int32_t id, uint32_t hash);
  // -1 if absent.
  int32_t find(std::string_view key) const { return find(key, hash_of(key)); }
  int32_t find(std::string_view key, uint32_t hash) const;
  // Who has many keys asks for some of them before looking at the first: the table of a big
  // vocabulary is in no near cache.
  void ask_for(uint32_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  const Texts& pieces_;
  std::vector<Slot> slots_;
  size_t mask_;
};

// Pieces that are cut out of a text before anything else: leftmost first, of several the longest.
// User-defined pieces always; control and unknown pieces only where the caller asks for them.
class SpecialPieces {
 public:
  // types[i] is the type of piece i.
  SpecialPieces(const Texts& pieces, const std::vector<int32_t>& types);

  // Calls on_text(fragment) and on_piece(id) for the parts of `text` in order; no fragment is
  // empty. strip_right: a special piece swallows the blanks after it.
  template <typename OnText, typename OnPiece>
  void split(std::string_view text, bool parse_special, bool strip_right, OnText on_text,
             OnPiece on_piece) const {
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const auto [id, size] = match(text, at, parse_special);
      if (id < 0) {
        ++at;
        continue;
      }
      if (at > begin) on_text(text.substr(begin, at - begin));
      on_piece(id);
      at += size;
      while (strip_right && at < text.size() && is_blank(text[at])) ++at;
      begin = at;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  // The longest special piece at text[at:], as (id, bytes); id -1 if there is none.
  std::pair<int32_t, size_t> match(std::string_view text, size_t at, bool parse_special) const;

  PieceTable table_;
  std::vector<bool> is_user_defined_;             // by id
  std::array<std::vector<uint32_t>, 256> sizes_;  // by first byte, longest first
};

// Bytes of the UTF-8 character that starts with `lead`; a stray byte counts as one.
inline size_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// Ids of the byte pieces "<0x00>" ... "<0xFF>"; -1 where there is none.
std::array<int32_t, 256> byte_pieces(const Texts& pieces, const std::vector<int32_t>& types);

}  // namespace octavo
