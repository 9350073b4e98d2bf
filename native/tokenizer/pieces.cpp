#include "tokenizer/pieces.h"

#include <algorithm>
#include <functional>

namespace octavo {
namespace {

bool is_type(int32_t value, PieceType type) {
  return value == static_cast<int32_t>(type);
}

bool is_special(int32_t type) {
  return is_type(type, PieceType::kUserDefined) || is_type(type, PieceType::kControl) ||
         is_type(type, PieceType::kUnknown);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The value of a byte piece "<0xAB>", or -1.
int byte_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  const int high = hex_digit(piece[3]), low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

PieceTable::PieceTable(const Texts& pieces, size_t count) : pieces_(pieces) {
  size_t capacity = 16;
  while (capacity < count + count / 2) capacity *= 2;
  slots_.resize(capacity);
  mask_ = capacity - 1;
}

uint32_t PieceTable::hash_of(std::string_view key) {
  const uint64_t h = std::hash<std::string_view>{}(key);
  return static_cast<uint32_t>(h ^ (h >> 32));
}

bool PieceTable::insert(int32_t id, uint32_t hash) {
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.id < 0) {
      slot = {hash, id};
      return true;
    }
    if (slot.hash == hash && pieces_[slot.id] == pieces_[id]) return false;
  }
}

int32_t PieceTable::find(std::string_view key, uint32_t hash) const {
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot& slot = slots_[i];
    if (slot.id < 0) return -1;
    if (slot.hash == hash && pieces_[slot.id] == key) return slot.id;
  }
}

SpecialPieces::SpecialPieces(const Texts& pieces, const std::vector<int32_t>& types)
    : table_(pieces, std::count_if(types.begin(), types.end(), is_special)),
      is_user_defined_(types.size()) {
  for (size_t i = 0; i < types.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!is_special(types[i]) || pieces[id].empty()) continue;
    table_.insert(id);
    is_user_defined_[i] = is_type(types[i], PieceType::kUserDefined);
    sizes_[static_cast<unsigned char>(pieces[id][0])].push_back(pieces[id].size());
  }
  for (auto& sizes : sizes_) {
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  }
}

std::pair<int32_t, size_t> SpecialPieces::match(std::string_view text, size_t at,
                                                bool parse_special) const {
  for (uint32_t size : sizes_[static_cast<unsigned char>(text[at])]) {
    if (size > text.size() - at) continue;
    const int32_t id = table_.find(text.substr(at, size));
    if (id >= 0 && (parse_special || is_user_defined_[id])) return {id, size};
  }
  return {-1, 0};
}

std::array<int32_t, 256> byte_pieces(const Texts& pieces, const std::vector<int32_t>& types) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (size_t i = 0; i < types.size(); ++i) {
    if (!is_type(types[i], PieceType::kByte)) continue;
    const int value = byte_value(pieces[static_cast<int32_t>(i)]);
    if (value >= 0) ids[value] = static_cast<int32_t>(i);
  }
  return ids;
}

}  // namespace octavo
