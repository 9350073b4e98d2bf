#include "sampling/batch.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace nb = nanobind;

namespace octavo {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& why) {
  throw std::invalid_argument("sampler: " + std::string(name) + " " + why);
}

// The attribute `name` as an array of T with `size` elements (any number if negative).
template <typename T>
Array1<T> array_of(nb::handle batch, const char* name, int64_t size) {
  Array1<T> array;
  if (!nb::try_cast(batch.attr(name), array)) {
    refuse(name, "must be a contiguous one-dimensional array of the declared type");
  }
  int64_t got = static_cast<int64_t>(array.shape(0));
  if (size >= 0 && got != size) {
    refuse(name, "has " + std::to_string(got) + " elements, expected " + std::to_string(size));
  }
  return array;
}

// Row starts: begin at 0, never fall, end at `total`.
void check_starts(const char* name, const Array1<int32_t>& starts, int64_t total) {
  const int32_t* begin = starts.data();
  const int32_t* end = begin + starts.shape(0);
  if (begin[0] != 0 || end[-1] != total || !std::is_sorted(begin, end)) {
    refuse(name, "must rise from 0 to " + std::to_string(total));
  }
}

void check_range(const char* name, const float* values, int64_t n, float low, float high) {
  for (int64_t i = 0; i < n; ++i) {
    if (!(values[i] >= low && values[i] <= high)) {
      refuse(name, "of row " + std::to_string(i) + " is " + std::to_string(values[i]));
    }
  }
}

constexpr float kLargest = 3.4028235e38f;
constexpr float kSmallest = 1.17549435e-38f;

}  // namespace

NativeBatch::NativeBatch(nb::handle batch) {
  auto temperature = array_of<float>(batch, "temperature", -1);
  int64_t rows = static_cast<int64_t>(temperature.shape(0));
  auto keep = [this](auto& array) {
    kept_.push_back(nb::cast(array));
    return array.data();
  };
  auto floats = [&](const char* name, float low, float high) {
    auto array = array_of<float>(batch, name, rows);
    check_range(name, array.data(), rows, low, high);
    return keep(array);
  };
  auto ints = [&](const char* name) {
    auto array = array_of<int32_t>(batch, name, rows);
    return keep(array);
  };
  auto starts = [&](const char* name, int64_t total) {
    auto array = array_of<int32_t>(batch, name, rows + 1);
    check_starts(name, array, total);
    return keep(array);
  };
  auto history = array_of<int32_t>(batch, "history", -1);
  auto bias_ids = array_of<int32_t>(batch, "bias_ids", -1);
  int64_t biases = static_cast<int64_t>(bias_ids.shape(0));
  auto bias_values = array_of<float>(batch, "bias_values", biases);
  check_range("bias_values", bias_values.data(), biases, -kLargest, kLargest);
  auto banned = array_of<int32_t>(batch, "banned", -1);
  auto listed = array_of<int32_t>(batch, "listed", -1);
  auto seed = array_of<uint64_t>(batch, "seed", rows);

  view_.rows = rows;
  view_.temperature = floats("temperature", 0, kLargest);
  view_.top_k = ints("top_k");
  view_.top_p = floats("top_p", kSmallest, 1);
  view_.min_p = floats("min_p", 0, 1);
  view_.repetition_penalty = floats("repetition_penalty", kSmallest, kLargest);
  view_.presence_penalty = floats("presence_penalty", -kLargest, kLargest);
  view_.frequency_penalty = floats("frequency_penalty", -kLargest, kLargest);
  view_.seed = keep(seed);
  view_.counter = ints("counter");
  view_.num_logprobs = ints("num_logprobs");
  view_.history = keep(history);
  view_.history_start = starts("history_start", static_cast<int64_t>(history.shape(0)));
  view_.prompt_count = ints("prompt_count");
  view_.bias_ids = keep(bias_ids);
  view_.bias_values = keep(bias_values);
  view_.bias_start = starts("bias_start", biases);
  view_.banned = keep(banned);
  view_.banned_start = starts("banned_start", static_cast<int64_t>(banned.shape(0)));
  view_.listed = keep(listed);
  view_.listed_start = starts("listed_start", static_cast<int64_t>(listed.shape(0)));
  for (int64_t r = 0; r < rows; ++r) {
    listed_n_ = std::max<int64_t>(listed_n_, view_.listed_start[r + 1] - view_.listed_start[r]);
    int32_t length = view_.history_start[r + 1] - view_.history_start[r];
    if (view_.prompt_count[r] < 0 || view_.prompt_count[r] > length) {
      refuse("prompt_count", "of row " + std::to_string(r) + " exceeds its history");
    }
    top_n_ = std::max<int64_t>(top_n_, view_.num_logprobs[r]);
  }
  nb::object mask = batch.attr("mask");
  if (mask.is_none()) return;
  Array2<uint32_t> words;
  if (!nb::try_cast(mask, words) || static_cast<int64_t>(words.shape(0)) != rows) {
    refuse("mask", "must be a contiguous uint32 array with one line per row");
  }
  view_.mask_words = static_cast<int64_t>(words.shape(1));
  view_.mask = keep(words);
}

void NativeBatch::check_vocab(int64_t vocab) const {
  if (view_.mask != nullptr && view_.mask_words != (vocab + 31) / 32) {
    refuse("mask", "has " + std::to_string(view_.mask_words) + " words per row, expected " +
                       std::to_string((vocab + 31) / 32));
  }
}

namespace {

// A new NumPy array; `data` receives its memory.
template <typename T>
nb::object new_array(std::initializer_list<size_t> shape, T*& data) {
  size_t size = 1;
  for (size_t d : shape) size *= d;
  data = new T[size];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner));
}

}  // namespace

ResultArrays::ResultArrays(int64_t rows, int64_t top_n, int64_t listed_n) : rows_(rows) {
  size_t r = static_cast<size_t>(rows), n = static_cast<size_t>(top_n);
  out_.top_n = top_n;
  out_.listed_n = listed_n;
  owners_[0] = new_array({r}, out_.ids);
  owners_[1] = new_array({r}, out_.logprobs);
  owners_[2] = new_array({r}, out_.ranks);
  owners_[3] = new_array({r, n}, out_.top_ids);
  owners_[4] = new_array({r, n}, out_.top_logprobs);
  owners_[5] = new_array({r, static_cast<size_t>(listed_n)}, out_.listed_logprobs);
}

nb::tuple ResultArrays::take() {
  return nb::make_tuple(std::move(owners_[0]), std::move(owners_[1]), std::move(owners_[2]),
                        std::move(owners_[3]), std::move(owners_[4]), std::move(owners_[5]));
}

}  // namespace octavo
