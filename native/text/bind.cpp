// octavo._native.Texts: a list of strings that nobody has to make Python strings of.
#include <nanobind/nanobind.h>

#include <memory>

#include "bindings.h"
#include "text/texts.h"

namespace nb = nanobind;

namespace octavo {
namespace {

void init(Texts* self, const nb::list& texts) {
  std::vector<std::string_view> views;
  views.reserve(texts.size());
  for (nb::handle text : texts) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (data == nullptr) throw nb::python_error();
    views.emplace_back(data, static_cast<size_t>(size));
  }
  new (self) Texts(views);
}

nb::str item(const Texts& self, Py_ssize_t index) {
  const auto size = static_cast<Py_ssize_t>(self.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) throw nb::index_error("Texts: index out of range");
  const std::string_view text = self[static_cast<size_t>(index)];
  return nb::str(text.data(), text.size());
}

nb::list items(const Texts& self, const nb::slice& range) {
  const auto [start, stop, step, length] = range.compute(self.size());
  nb::list result;
  for (size_t i = 0; i < length; ++i) {
    result.append(item(self, start + static_cast<Py_ssize_t>(i) * step));
  }
  return result;
}

nb::object iterate(const nb::handle self) {
  PyObject* iterator = PySeqIter_New(self.ptr());
  if (iterator == nullptr) throw nb::python_error();
  return nb::steal(iterator);
}

}  // namespace

void bind_text(nb::module_& m) {
  const auto texts = nb::class_<Texts>(m, "Texts", "Strings in one allocation, in order.")
                         .def("__init__", &init, nb::arg("texts"))
                         .def("__len__", &Texts::size)
                         .def("__getitem__", &item, nb::arg("index"))
                         .def("__getitem__", &items, nb::arg("index"))
                         .def("__iter__", &iterate);
  nb::module_::import_("collections.abc").attr("Sequence").attr("register")(texts);
}

}  // namespace octavo
