#include "text/texts.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace octavo {
namespace {

bool is_ascii(std::string_view text) {
  uint64_t word, seen = 0;
  size_t at = 0;
  for (; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    seen |= word;
  }
  for (; at < text.size(); ++at) seen |= static_cast<unsigned char>(text[at]);
  return (seen & 0x8080808080808080ull) == 0;
}

// Bytes of the character at text[at:], or 0 if it is none.
size_t character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a follower, or two bytes for ASCII
  if (lead < 0xE0) return follows(1) ? 2 : 0;
  if (lead < 0xF0) {
    if (lead == 0xE0 && second < 0xA0) return 0;  // fits into two bytes
    if (lead == 0xED && second > 0x9F) return 0;  // surrogates
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (lead > 0xF4 || (lead == 0xF0 && second < 0x90)) return 0;  // fits into three bytes
  if (lead == 0xF4 && second > 0x8F) return 0;                   // beyond U+10FFFF
  return follows(1) && follows(2) && follows(3) ? 4 : 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  if (is_ascii(text)) return true;
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

Texts::Texts(const std::vector<std::string_view>& texts) {
  size_t total = 0;
  for (std::string_view text : texts) total += text.size();
  text_.reserve(total);
  ends_.reserve(texts.size() + 1);
  ends_.push_back(0);
  for (std::string_view text : texts) {
    if (!is_utf8(text)) {
      throw std::invalid_argument("text " + std::to_string(size()) + " is not UTF-8");
    }
    text_.append(text);
    ends_.push_back(text_.size());
  }
}

}  // namespace octavo
