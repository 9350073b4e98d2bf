// octavo._native.MappedFile, GgufHeader and dequantize, wrapped by octavo.weights.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <system_error>

#include "bindings.h"
#include "gguf/dequantize.h"
#include "gguf/mapped_file.h"
#include "gguf/reader.h"
#include "text/texts.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using gguf::KeyValue;
using gguf::MappedFile;
using gguf::ValueType;
using Bytes = nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>;
using Input = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Python text; `errors` says what becomes of bytes that are not UTF-8.
nb::object text(std::string_view bytes, const char* errors = "replace") {
  PyObject* result =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), errors);
  if (result == nullptr) nb::raise_python_error();
  return nb::steal(result);
}

template <typename T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
nb::object numbers(const KeyValue& entry) {
  if (!entry.is_array) return nb::cast(load<T>(entry.payload));
  auto copy = std::make_unique<T[]>(entry.count);
  if (entry.count != 0) std::memcpy(copy.get(), entry.payload, entry.count * sizeof(T));
  T* data = copy.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {entry.count}, owner));
}

// A single string is prose (a name, a chat template): broken bytes become U+FFFD. Lists are tokens
// and merges, which must stay distinct: there they become lone surrogates, as in os.fsdecode.
nb::object strings(const KeyValue& entry) {
  const uint8_t* at = entry.payload;
  if (!entry.is_array) return text(gguf::next_string(at));
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(entry.count));
  if (list == nullptr) nb::raise_python_error();
  nb::object result = nb::steal(list);
  for (uint64_t i = 0; i < entry.count; ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i),
                    text(gguf::next_string(at), "surrogateescape").release().ptr());
  }
  return result;
}

// The header of a mapped file; keeps the mapping alive for its views.
struct GgufHeader {
  std::shared_ptr<MappedFile> file;
  gguf::Header header;
};

// The strings of an array in one allocation of their own, which outlives the file.
Texts texts_of(const KeyValue& entry) {
  if (!entry.is_array || entry.type != ValueType::kString) {
    throw nb::value_error("expected an array of strings");
  }
  std::vector<std::string_view> views;
  views.reserve(entry.count);
  const uint8_t* at = entry.payload;
  for (uint64_t i = 0; i < entry.count; ++i) views.push_back(gguf::next_string(at));
  return Texts(views);
}

// Raises IndexError.
const KeyValue& entry_at(const GgufHeader& self, size_t index) {
  if (index >= self.header.metadata.size()) throw nb::index_error("GgufHeader: no such value");
  return self.header.metadata[index];
}

nb::object value_of(const KeyValue& entry) {
  switch (entry.type) {
    case ValueType::kUint8:
      return numbers<uint8_t>(entry);
    case ValueType::kInt8:
      return numbers<int8_t>(entry);
    case ValueType::kUint16:
      return numbers<uint16_t>(entry);
    case ValueType::kInt16:
      return numbers<int16_t>(entry);
    case ValueType::kUint32:
      return numbers<uint32_t>(entry);
    case ValueType::kInt32:
      return numbers<int32_t>(entry);
    case ValueType::kFloat32:
      return numbers<float>(entry);
    case ValueType::kBool:
      return numbers<bool>(entry);
    case ValueType::kUint64:
      return numbers<uint64_t>(entry);
    case ValueType::kInt64:
      return numbers<int64_t>(entry);
    case ValueType::kFloat64:
      return numbers<double>(entry);
    default:
      return strings(entry);
  }
}

gguf::BlockSizes block_sizes(const nb::dict& table) {
  gguf::BlockSizes sizes;
  for (const auto& [type, size] : table) {
    const auto pair = nb::cast<nb::tuple>(size);
    sizes[nb::cast<uint32_t>(type)] = {nb::cast<uint64_t>(pair[0]), nb::cast<uint64_t>(pair[1])};
  }
  return sizes;
}

nb::list tensor_list(const GgufHeader& self) {
  nb::list result;
  for (const gguf::TensorInfo& tensor : self.header.tensors) {
    nb::list shape;
    for (const int64_t size : tensor.shape) shape.append(size);
    result.append(nb::make_tuple(text(tensor.name), nb::tuple(shape), tensor.type, tensor.begin,
                                 tensor.size_bytes));
  }
  return result;
}

nb::dict key_index(const GgufHeader& self) {
  nb::dict result;
  for (size_t i = 0; i < self.header.metadata.size(); ++i) {
    result[text(self.header.metadata[i].key)] = i;
  }
  return result;
}

nb::object expand(const Input& data, uint32_t type, uint64_t block_elems, uint64_t block_bytes) {
  if (!gguf::can_dequantize(type) || block_bytes == 0 || data.size() % block_bytes != 0) {
    throw nb::value_error("dequantize: unknown type or a partial block");
  }
  const uint64_t blocks = data.size() / block_bytes;
  const uint64_t count = blocks * block_elems;
  // Not value-initialized: every element is written below.
  std::unique_ptr<float[]> out(new float[count]);
  {
    const nb::gil_scoped_release release;
    gguf::dequantize(type, data.data(), blocks, out.get());
  }
  float* floats = out.release();
  const nb::capsule owner(floats, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(floats, {count}, owner));
}

// FormatError -> octavo.errors.FormatError; std::system_error -> OSError with errno and file name.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const gguf::FormatError& e) {
    const nb::object type = nb::module_::import_("octavo.errors").attr("FormatError");
    PyErr_SetString(type.ptr(), e.what());
  } catch (const std::system_error& e) {
    errno = e.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  }
}

}  // namespace

void bind_gguf(nb::module_& m) {
  nb::register_exception_translator(translate);

  nb::class_<MappedFile>(m, "MappedFile", "A whole file mapped read-only.")
      .def(nb::init<std::string>(), nb::arg("path"))
      .def_prop_ro("path", &MappedFile::path)
      .def(
          "array",
          [](const std::shared_ptr<MappedFile>& self) {
            auto* keep = new std::shared_ptr<MappedFile>(self);
            const nb::capsule owner(keep, [](void* p) noexcept {
              delete static_cast<std::shared_ptr<MappedFile>*>(p);
            });
            return Bytes(self->bytes().data(), {self->bytes().size()}, owner);
          },
          "The bytes as a read-only uint8 array that keeps the mapping alive.")
      .def("release", &MappedFile::release, nb::arg("offset"), nb::arg("length"),
           "Give the whole pages of a range back to the OS; they stay readable.");

  nb::class_<GgufHeader>(m, "GgufHeader", "The checked header of a GGUF file.")
      .def(
          "__init__",
          [](GgufHeader* self, const std::shared_ptr<MappedFile>& file, const nb::dict& table) {
            new (self) GgufHeader{file, gguf::read_header(file->bytes(), block_sizes(table))};
          },
          nb::arg("file"), nb::arg("block_sizes"),
          "block_sizes: GGML type id -> (elements, bytes) of a block.")
      .def_prop_ro("version", [](const GgufHeader& self) { return self.header.version; })
      .def_prop_ro("alignment", [](const GgufHeader& self) { return self.header.alignment; })
      .def("keys", &key_index, "Metadata key -> index for value().")
      .def(
          "value",
          [](const GgufHeader& self, size_t index) { return value_of(entry_at(self, index)); },
          nb::arg("index"), "One value: a scalar, str, list of str, or NumPy array.")
      .def(
          "texts",
          [](const GgufHeader& self, size_t index) { return texts_of(entry_at(self, index)); },
          nb::arg("index"), "One array of strings, as Texts.")
      .def("tensors", &tensor_list, "(name, shape, type, first byte, bytes) of each tensor.");

  m.def("dequantize", &expand, nb::arg("data"), nb::arg("ggml_type"), nb::arg("block_elems"),
        nb::arg("block_bytes"), "Expand whole blocks (uint8) to float32; releases the GIL.");
}

}  // namespace octavo
