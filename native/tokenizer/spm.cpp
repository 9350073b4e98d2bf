#include "tokenizer/spm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

namespace octavo {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, how a space is written in pieces

uint32_t hash_of(std::string_view key) {
  const uint64_t h = std::hash<std::string_view>{}(key);
  return static_cast<uint32_t>(h ^ (h >> 32));
}

// Bytes of the UTF-8 character that starts with `lead`; a stray byte counts as one.
size_t utf8_size(unsigned char lead) {
  if (lead < 0xC0) return 1;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

// The value of a byte piece "<0xAB>", or -1.
int byte_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

void PieceTable::reserve(size_t count) {
  size_t capacity = 16;
  while (capacity < count * 2) capacity *= 2;
  slots_.assign(capacity, Slot{});
  mask_ = capacity - 1;
}

void PieceTable::insert(std::string_view key, int32_t id) {
  const uint32_t hash = hash_of(key);
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.id < 0) {
      slot = Slot{hash, id, key.data(), static_cast<uint32_t>(key.size())};
      return;
    }
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == key) return;
  }
}

int32_t PieceTable::find(std::string_view key) const {
  const uint32_t hash = hash_of(key);
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot& slot = slots_[i];
    if (slot.id < 0) return -1;
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == key) return slot.id;
  }
}

SpmEncoder::SpmEncoder(const std::vector<std::string_view>& pieces, std::vector<float> scores,
                       const std::vector<int32_t>& types, Options options)
    : scores_(std::move(scores)), is_user_defined_(pieces.size()), options_(options) {
  byte_ids_.fill(-1);
  size_t total = 0;
  for (std::string_view piece : pieces) total += piece.size();
  blob_.reserve(total);  // never grows afterwards: keys stay valid
  size_t num_special = 0;
  for (int32_t type : types) {
    num_special += type == static_cast<int32_t>(PieceType::kUserDefined) ||
                   type == static_cast<int32_t>(PieceType::kControl) ||
                   type == static_cast<int32_t>(PieceType::kUnknown);
  }
  mergeable_.reserve(pieces.size());
  special_.reserve(num_special);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (std::isnan(scores_[i])) scores_[i] = -std::numeric_limits<float>::infinity();
    if (pieces[i].empty()) continue;
    const std::string_view piece(blob_.data() + blob_.size(), pieces[i].size());
    blob_.append(pieces[i]);
    const auto id = static_cast<int32_t>(i);
    const auto type = static_cast<PieceType>(types[i]);
    if (type == PieceType::kByte) {
      if (const int value = byte_value(piece); value >= 0) byte_ids_[value] = id;
      continue;
    }
    if (type != PieceType::kControl && type != PieceType::kUnknown) {
      mergeable_.insert(piece, id);
      max_piece_size_ = std::max(max_piece_size_, piece.size());
    }
    is_user_defined_[i] = type == PieceType::kUserDefined;
    if (is_user_defined_[i] || type == PieceType::kControl || type == PieceType::kUnknown) {
      special_.insert(piece, id);
      special_sizes_[static_cast<unsigned char>(piece[0])].push_back(piece.size());
    }
  }
  for (auto& sizes : special_sizes_) {
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  }
}

std::pair<int32_t, size_t> SpmEncoder::match_special(std::string_view text, size_t at,
                                                     bool parse_special) const {
  for (uint32_t size : special_sizes_[static_cast<unsigned char>(text[at])]) {
    if (at + size > text.size()) continue;
    const int32_t id = special_.find(text.substr(at, size));
    if (id >= 0 && (parse_special || is_user_defined_[id])) return {id, size};
  }
  return {-1, 0};
}

std::vector<int32_t> SpmEncoder::encode(std::string_view text, bool parse_special) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  bool after_special = true;  // the start of the text counts as one
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [id, size] = match_special(text, at, parse_special);
    if (id < 0) {
      ++at;
      continue;
    }
    if (at > begin) {
      encode_fragment(text.substr(begin, at - begin), after_special && options_.space_prefix, ids);
    }
    ids.push_back(id);
    after_special = true;
    at += size;
    while (options_.strip_right && at < text.size() && is_blank(text[at])) ++at;
    begin = at;
  }
  if (begin < text.size()) {
    encode_fragment(text.substr(begin), after_special && options_.space_prefix, ids);
  }
  return ids;
}

void SpmEncoder::encode_fragment(std::string_view fragment, bool with_space,
                                 std::vector<int32_t>& ids) const {
  std::string text;
  text.reserve(fragment.size() * 2);
  if (with_space) text.append(kSpace);
  for (char c : fragment) {
    if (c == ' ') {
      text.append(kSpace);
    } else {
      text.push_back(c);
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min(utf8_size(static_cast<unsigned char>(text[at])), text.size() - at);
    const auto index = static_cast<int32_t>(symbols.size());
    at += size;
    symbols.push_back({static_cast<uint32_t>(at - size), static_cast<uint32_t>(size), index - 1,
                       at == text.size() ? -1 : index + 1});
  }

  std::vector<Bigram> storage;
  storage.reserve(symbols.size() * 2);
  std::priority_queue<Bigram> queue(std::less<Bigram>{}, std::move(storage));
  const std::string_view view = text;
  const auto try_merge = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const uint32_t size = symbols[left].size + symbols[right].size;
    if (size > max_piece_size_) return;
    const int32_t id = mergeable_.find(view.substr(symbols[left].begin, size));
    if (id >= 0) queue.push({scores_[id], left, right, size});
  };
  for (size_t i = 1; i < symbols.size(); ++i) {
    try_merge(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  }
  while (!queue.empty()) {
    const Bigram best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
    left.size = best.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].prev = best.left;
    try_merge(left.prev, best.left);
    try_merge(best.left, left.next);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
    emit(view.substr(symbols[i].begin, symbols[i].size), ids);
  }
}

void SpmEncoder::emit(std::string_view symbol, std::vector<int32_t>& ids) const {
  if (const int32_t id = mergeable_.find(symbol); id >= 0) {
    ids.push_back(id);
    return;
  }
  const auto has_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
  if (std::all_of(symbol.begin(), symbol.end(), has_id)) {
    for (char c : symbol) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  } else if (options_.unknown_id >= 0 && (ids.empty() || ids.back() != options_.unknown_id)) {
    ids.push_back(options_.unknown_id);  // a run of unknown characters is one token
  }
}

}  // namespace octavo
