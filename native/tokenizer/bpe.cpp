#include "tokenizer/bpe.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

namespace octavo {
namespace {

constexpr size_t kAhead = 16;  // keys that are asked for before the first is looked at

}  // namespace

BpeEncoder::BpeEncoder(std::shared_ptr<const Texts> pieces, const Texts& merges,
                       const std::vector<int32_t>& types, Options options)
    : owner_(std::move(pieces)),
      pieces_(*owner_),
      table_(pieces_, pieces_.size()),
      special_(pieces_, types),
      byte_ids_(byte_pieces(pieces_, types)),
      options_(options) {
  // The first of equal pieces is meant, which a guess would not know.
  size_t guess = insert_pieces() ? 0 : pieces_.size();
  size_t capacity = 16;
  while (capacity < merges.size() + merges.size() / 2) capacity *= 2;
  merges_.resize(capacity);
  mask_ = capacity - 1;
  std::array<Asked, kAhead> asked;
  for (size_t rank = 0; rank < merges.size() + kAhead; ++rank) {
    Asked& slot = asked[rank % kAhead];
    if (rank >= kAhead && rank - kAhead < merges.size()) {
      add_merge(slot, static_cast<uint32_t>(rank - kAhead), guess);
    }
    if (rank < merges.size()) slot = ask_for(merges[rank]);
  }
}

bool BpeEncoder::insert_pieces() {
  std::array<uint32_t, kAhead> hashes;
  bool distinct = true;
  const size_t count = pieces_.size();
  for (size_t i = 0; i < count + kAhead; ++i) {
    uint32_t& hash = hashes[i % kAhead];
    const auto id = static_cast<int32_t>(i - kAhead);
    if (i >= kAhead && !pieces_[id].empty() && !table_.insert(id, hash)) distinct = false;
    if (i >= count) continue;
    hash = PieceTable::hash_of(pieces_[i]);
    table_.ask_for(hash);
  }
  return distinct;
}

BpeEncoder::Asked BpeEncoder::ask_for(std::string_view merge) const {
  const size_t space = merge.find(' ', 1);  // a left part may itself be a space
  if (space == std::string_view::npos) return {};
  const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
  const Asked asked{left, right, PieceTable::hash_of(left), PieceTable::hash_of(right)};
  table_.ask_for(asked.left_hash);
  table_.ask_for(asked.right_hash);
  return asked;
}

void BpeEncoder::add_merge(const Asked& merge, uint32_t rank, size_t& guess) {
  if (merge.left.empty()) return;  // not two parts
  const int32_t left_id = table_.find(merge.left, merge.left_hash);
  const int32_t right_id = table_.find(merge.right, merge.right_hash);
  const int32_t result = find_result(merge, guess);
  if (left_id < 0 || right_id < 0 || result < 0) return;
  const uint64_t pair = pair_of(left_id, right_id);
  size_t i = slot_of(pair);
  while (merges_[i].result >= 0) {
    if (merges_[i].pair == pair) return;  // the better rank came first
    i = (i + 1) & mask_;
  }
  merges_[i] = {pair, rank, result};
}

// Vocabularies list pieces in the order of the merges that make them.
int32_t BpeEncoder::find_result(const Asked& merge, size_t& guess) const {
  if (guess == pieces_.size()) return table_.find(std::string(merge.left).append(merge.right));
  const std::string_view piece = pieces_[guess];
  if (piece.size() == merge.left.size() + merge.right.size() && piece.starts_with(merge.left) &&
      piece.ends_with(merge.right)) {
    return static_cast<int32_t>(guess++);
  }
  const int32_t result = table_.find(std::string(merge.left).append(merge.right));
  if (result >= 0) guess = static_cast<size_t>(result) + 1;
  return result;
}

const BpeEncoder::Merge* BpeEncoder::find_merge(uint64_t pair) const {
  for (size_t i = slot_of(pair); merges_[i].result >= 0; i = (i + 1) & mask_) {
    if (merges_[i].pair == pair) return &merges_[i];
  }
  return nullptr;
}

void BpeEncoder::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.whole_words) {
    if (const int32_t id = table_.find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol> symbols;
  spell(word, symbols);
  merge_all(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

// One symbol a character; bytes or the unknown token where a character is no piece.
void BpeEncoder::spell(std::string_view word, std::vector<Symbol>& symbols) const {
  symbols.reserve(word.size());
  const auto add = [&](int32_t id) {
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  };
  const auto has_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
  for (size_t at = 0, size; at < word.size(); at += size) {
    size = std::min(utf8_size(word[at]), word.size() - at);
    const std::string_view character = word.substr(at, size);
    if (const int32_t id = table_.find(character); id >= 0) {
      add(id);
    } else if (std::all_of(character.begin(), character.end(), has_id)) {
      for (char c : character) add(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (options_.unknown_id >= 0 &&
               (symbols.empty() || symbols.back().id != options_.unknown_id)) {
      add(options_.unknown_id);  // a run of unknown characters is one token
    }
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void BpeEncoder::merge_all(std::vector<Symbol>& symbols) const {
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const uint64_t pair = pair_of(symbols[left].id, symbols[symbols[left].next].id);
    if (const Merge* merge = find_merge(pair)) queue.push({merge->rank, left, pair, merge->result});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (pair_of(left.id, right.id) != best.pair) continue;
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].prev = best.left;
    consider(left.prev);
    consider(best.left);
  }
}

}  // namespace octavo
