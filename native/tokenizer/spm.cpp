#include "tokenizer/spm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

namespace octavo {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, how a space is written in pieces

}  // namespace

SpmEncoder::SpmEncoder(std::shared_ptr<const Texts> pieces, std::vector<float> scores,
                       const std::vector<int32_t>& types, Options options)
    : owner_(std::move(pieces)),
      pieces_(*owner_),
      scores_(std::move(scores)),
      mergeable_(pieces_, pieces_.size()),
      special_(pieces_, types),
      byte_ids_(byte_pieces(pieces_, types)),
      options_(options) {
  for (size_t i = 0; i < types.size(); ++i) {
    if (std::isnan(scores_[i])) scores_[i] = -std::numeric_limits<float>::infinity();
    const auto type = static_cast<PieceType>(types[i]);
    const auto id = static_cast<int32_t>(i);
    if (pieces_[id].empty() || type == PieceType::kControl || type == PieceType::kUnknown ||
        type == PieceType::kByte) {
      continue;
    }
    mergeable_.insert(id);
    max_piece_size_ = std::max(max_piece_size_, pieces_[id].size());
  }
}

std::vector<int32_t> SpmEncoder::encode(std::string_view text, bool parse_special) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  bool after_special = true;  // the start of the text counts as one
  special_.split(
      text, parse_special, options_.strip_right,
      [&](std::string_view fragment) {
        encode_fragment(fragment, after_special && options_.space_prefix, ids);
        after_special = false;
      },
      [&](int32_t id) {
        ids.push_back(id);
        after_special = true;
      });
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
    const size_t size = std::min(utf8_size(text[at]), text.size() - at);
    const auto index = static_cast<int32_t>(symbols.size());
    at += size;
    symbols.push_back({static_cast<uint32_t>(at - size), static_cast<uint32_t>(size), index - 1,
                       at == text.size() ? -1 : index + 1});
  }
  merge(text, symbols);
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    emit(std::string_view(text).substr(symbols[i].begin, symbols[i].size), ids);
  }
}

void SpmEncoder::merge(std::string_view text, std::vector<Symbol>& symbols) const {
  std::priority_queue<Bigram> queue;
  const auto try_merge = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const uint32_t size = symbols[left].size + symbols[right].size;
    if (size > max_piece_size_) return;
    const int32_t id = mergeable_.find(text.substr(symbols[left].begin, size));
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
