// Many short texts in one allocation: a vocabulary, or a list of merges.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Immutable. Every text is valid UTF-8.
class Texts {
 public:
  // Throws std::invalid_argument, naming the first text that is not UTF-8.
  explicit Texts(const std::vector<std::string_view>& texts);
  size_t size() const { return ends_.size() - 1; }
  std::string_view operator[](size_t i) const {
    return {text_.data() + ends_[i], ends_[i + 1] - ends_[i]};
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;  // text i is text_[ends_[i], ends_[i + 1])
};

// As the Unicode standard's table 3-7 has it: no surrogates, nothing longer than it must be.
bool is_utf8(std::string_view text);

}  // namespace octavo
