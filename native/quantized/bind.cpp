// Repacking of quantized weights for weights/quantized.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "quantized/repack.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <typename T>
using Flat = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, uint8_t> bytes(std::vector<uint8_t>* owned) {
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
  return nb::ndarray<nb::numpy, uint8_t>(owned->data(), {owned->size()}, owner);
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("repack: ") + what);
}

// Blocks of the type, or None if a number does not fit it.
nb::object integers(const Flat<uint32_t>& words, int bits, std::tuple<int64_t, int64_t> shape,
                    std::tuple<int64_t, int64_t, int64_t> strides, bool interleaved,
                    const Matrix<int16_t>& zeros, const Matrix<uint16_t>& scales, int type,
                    const Flat<int32_t>& order) {
  PackedIntegers s;
  s.words = words.data();
  s.num_words = words.shape(0);
  s.bits = bits;
  std::tie(s.n, s.k) = shape;
  std::tie(s.row_stride, s.block_stride, s.word_stride) = strides;
  s.interleaved = interleaved;
  const size_t groups = scales.shape(1);
  require(groups > 0 && s.n > 0 && s.k > 0 && s.k < (int64_t{1} << 40), "an empty or huge weight");
  require(zeros.shape(0) == scales.shape(0) && zeros.shape(1) == groups &&
              static_cast<int64_t>(scales.shape(0)) == s.n &&
              s.k % static_cast<int64_t>(groups) == 0,
          "zero points or scales of another shape");
  s.group = s.k / static_cast<int64_t>(groups);
  s.zeros = zeros.data();
  require(order.shape(0) == 0 || static_cast<int64_t>(order.shape(0)) == s.k, "an order of others");
  if (order.shape(0) > 0) s.order = order.data();
  s.scales = scales.data();
  const auto source = static_cast<SourceType>(type);
  auto* out = new std::vector<uint8_t>(source_row_bytes(source, s.k) * static_cast<size_t>(s.n));
  auto result = bytes(out);
  bool fits = false;
  {
    nb::gil_scoped_release release;
    fits = integer_blocks(s, source, out->data());
  }
  return fits ? nb::cast(result) : nb::none();
}

// float16 bytes, or None if a number is beyond their range.
nb::object halves(const Flat<uint8_t>& codes, bool nibbles, const Flat<float>& table,
                  std::tuple<int64_t, int64_t> shape, const Matrix<float>& scales,
                  int64_t row_block, int64_t group) {
  ScaledCodes s;
  std::tie(s.n, s.k) = shape;
  require(s.n > 0 && s.k > 0 && row_block > 0 && group > 0, "an empty weight");
  const auto count = static_cast<size_t>(s.n) * static_cast<size_t>(s.k);
  require(codes.shape(0) * (nibbles ? 2 : 1) == count, "codes of another number");
  require(table.shape(0) == (nibbles ? 16 : 256), "a table of another size");
  require(static_cast<int64_t>(scales.shape(0)) == (s.n + row_block - 1) / row_block &&
              static_cast<int64_t>(scales.shape(1)) == (s.k + group - 1) / group,
          "scales of another shape");
  s.codes = codes.data();
  s.nibbles = nibbles;
  s.table = table.data();
  s.scales = scales.data();
  s.row_block = row_block;
  s.group = group;
  auto* out = new std::vector<uint8_t>(count * 2);
  auto result = bytes(out);
  bool fits = false;
  {
    nb::gil_scoped_release release;
    fits = scaled_halves(s, reinterpret_cast<uint16_t*>(out->data()));
  }
  return fits ? nb::cast(result) : nb::none();
}

}  // namespace

void bind_quantized(nb::module_& m) {
  m.def("repack_integers", &integers, "words"_a, "bits"_a, "shape"_a, "strides"_a, "interleaved"_a,
        "zeros"_a, "scales"_a, "source_type"_a, "order"_a,
        "Packed integers [n, k] as blocks of Q4_0, Q5_0, Q8_0 or a type with zero points;"
        " None if one does not fit.");
  m.def("scaled_halves", &halves, "codes"_a, "nibbles"_a, "table"_a, "shape"_a, "scales"_a,
        "row_block"_a, "group"_a,
        "table[code] * scale as float16 bytes; None if one is beyond their range.");
}

}  // namespace octavo
