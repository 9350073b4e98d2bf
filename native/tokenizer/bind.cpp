#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bindings.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spm.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max() / 4;

// UTF-8 of a Python string; owned by the string. Raises TypeError or UnicodeEncodeError.
std::string_view utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  if (static_cast<size_t>(size) > kMaxTextBytes) {
    throw std::invalid_argument("tokenizer: the text is longer than 512 MiB");
  }
  return {data, static_cast<size_t>(size)};
}

std::vector<int32_t> types_of(const Ints& types, size_t count) {
  if (types.shape(0) != count) {
    throw std::invalid_argument("tokenizer: pieces and types differ in length");
  }
  return {types.data(), types.data() + count};
}

void init_spm(SpmEncoder* self, std::shared_ptr<Texts> pieces, const Floats& scores,
              const Ints& types, bool space_prefix, bool strip_right, int32_t unknown_id) {
  const size_t size = pieces->size();
  if (scores.shape(0) != size) {
    throw std::invalid_argument("tokenizer: pieces and scores differ in length");
  }
  new (self) SpmEncoder(std::move(pieces), {scores.data(), scores.data() + size},
                        types_of(types, size), {space_prefix, strip_right, unknown_id});
}

std::vector<int32_t> encode_spm(const SpmEncoder& self, const nb::str& text, bool parse_special) {
  const std::string_view view = utf8_of(text);
  nb::gil_scoped_release release;  // `text` is held by the caller's frame
  return self.encode(view, parse_special);
}

void init_bpe(BpeEncoder* self, std::shared_ptr<Texts> pieces, const Texts& merges,
              const Ints& types, bool whole_words, int32_t unknown_id) {
  const size_t size = pieces->size();
  new (self)
      BpeEncoder(std::move(pieces), merges, types_of(types, size), {whole_words, unknown_id});
}

// The text's parts in order: strings, and ids of special pieces.
nb::list split_bpe(const BpeEncoder& self, const nb::str& text, bool parse_special) {
  nb::list parts;
  self.special().split(
      utf8_of(text), parse_special, false,
      [&](std::string_view fragment) { parts.append(nb::str(fragment.data(), fragment.size())); },
      [&](int32_t id) { parts.append(id); });
  return parts;
}

std::vector<int32_t> encode_words(const BpeEncoder& self, const nb::list& words) {
  std::vector<int32_t> ids;
  ids.reserve(words.size() * 2);
  for (nb::handle word : words) self.encode_word(utf8_of(word), ids);
  return ids;
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<SpmEncoder>(m, "SpmEncoder")
      .def("__init__", &init_spm, nb::arg("pieces"), nb::arg("scores"), nb::arg("types"),
           nb::kw_only(), nb::arg("space_prefix"), nb::arg("strip_right"), nb::arg("unknown_id"))
      .def("encode", &encode_spm, nb::arg("text"), nb::arg("parse_special"));
  nb::class_<BpeEncoder>(m, "BpeEncoder")
      .def("__init__", &init_bpe, nb::arg("pieces"), nb::arg("merges"), nb::arg("types"),
           nb::kw_only(), nb::arg("whole_words"), nb::arg("unknown_id"))
      .def("split", &split_bpe, nb::arg("text"), nb::arg("parse_special"))
      .def("encode_words", &encode_words, nb::arg("words"));
}

}  // namespace octavo
