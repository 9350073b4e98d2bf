#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <stdexcept>

#include "bindings.h"
#include "tokenizer/spm.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// UTF-8 of a Python string; owned by the string.
std::string_view utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

void init_spm(SpmEncoder* self, const nb::list& pieces, const Floats& scores, const Ints& types,
              bool space_prefix, bool strip_right, int32_t unknown_id) {
  const size_t count = pieces.size();
  if (scores.shape(0) != count || types.shape(0) != count) {
    throw std::invalid_argument("SpmEncoder: pieces, scores and types differ in length");
  }
  std::vector<std::string_view> views;
  views.reserve(count);
  for (nb::handle piece : pieces) views.push_back(utf8_of(piece));
  new (self)
      SpmEncoder(views, {scores.data(), scores.data() + count},
                 {types.data(), types.data() + count}, {space_prefix, strip_right, unknown_id});
}

std::vector<int32_t> encode_spm(const SpmEncoder& self, const nb::str& text, bool parse_special) {
  const std::string_view view = utf8_of(text);
  if (view.size() > std::numeric_limits<int32_t>::max() / 4) {
    throw std::invalid_argument("SpmEncoder: the text is longer than 512 MiB");
  }
  nb::gil_scoped_release release;  // `text` is held by the caller's frame
  return self.encode(view, parse_special);
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<SpmEncoder>(m, "SpmEncoder")
      .def("__init__", &init_spm, nb::arg("pieces"), nb::arg("scores"), nb::arg("types"),
           nb::kw_only(), nb::arg("space_prefix"), nb::arg("strip_right"), nb::arg("unknown_id"))
      .def("encode", &encode_spm, nb::arg("text"), nb::arg("parse_special"));
}

}  // namespace octavo
