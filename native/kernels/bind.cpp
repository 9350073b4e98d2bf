// Panels and products for tests and benchmarks. The engine does not go through here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "kernels/measure.h"
#include "kernels/panel.h"
#include "runtime/thread_pool.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using FloatMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<uint8_t, Free>;

Buffer allocate(size_t bytes) {
  void* p = std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
  if (p == nullptr) throw std::bad_alloc();
  return Buffer(static_cast<uint8_t*>(p));
}

template <typename T>
nb::ndarray<nb::numpy, T> array(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T>(owned->data(), shape, owner);
}

bool needs_bf16() {
  return usual_products() == Products::kBf16;
}

void quantize_all(const float* x, QuantizedRows& out) {
  for (int64_t r = 0; r < out.rows; ++r) quantize_groups(x + r * out.k, out, r, 0, out.groups);
}

// A packed matrix that owns its bytes.
class PackedMatrix {
 public:
  PackedMatrix(int source, int64_t n, int64_t k, const Bytes& raw, bool as_float)
      : matrix_(plan_panels(static_cast<SourceType>(source), n, k, as_float, needs_bf16())) {
    const size_t want = source_row_bytes(matrix_.file, k) * static_cast<size_t>(n);
    if (raw.size() != want) {
      throw std::invalid_argument("PackedMatrix: got " + std::to_string(raw.size()) +
                                  " bytes; expected " + std::to_string(want));
    }
    data_ = allocate(matrix_.size_bytes());
    pack_panels(matrix_, raw.data(), 0, matrix_.num_panels, data_.get());
    matrix_.data = data_.get();
  }

  size_t size_bytes() const { return matrix_.size_bytes(); }
  int64_t num_panels() const { return matrix_.num_panels; }

  nb::ndarray<nb::numpy, float> row(int64_t i) const {
    if (i < 0 || i >= matrix_.num_panels * kPanelRows) {
      throw nb::index_error("PackedMatrix.unpack_row: no such row");
    }
    std::vector<float> out(static_cast<size_t>(matrix_.k));
    unpack_row(matrix_, i, out.data());
    return array(std::move(out), {static_cast<size_t>(matrix_.k)});
  }

  // x[M, K] -> [M, N]; only rows [row_begin, row_end) and panels [begin, end), the rest stays NaN.
  nb::ndarray<nb::numpy, float> linear(const FloatMatrix& x, int64_t begin, int64_t end,
                                       int64_t row_begin, int64_t row_end, int threads) const {
    const auto rows = static_cast<int64_t>(x.shape(0));
    if (static_cast<int64_t>(x.shape(1)) != matrix_.k) {
      throw std::invalid_argument("PackedMatrix.linear: x has " + std::to_string(x.shape(1)) +
                                  " columns; expected " + std::to_string(matrix_.k));
    }
    if (end < 0) end = matrix_.num_panels;
    if (row_end < 0) row_end = rows;
    if (begin < 0 || begin > end || end > matrix_.num_panels || row_begin < 0 ||
        row_begin > row_end || row_end > rows || threads < 1) {
      throw std::invalid_argument("PackedMatrix.linear: range outside the matrix");
    }
    std::vector<float> out(static_cast<size_t>(rows * matrix_.n), __builtin_nanf(""));
    product(x.data(), rows, begin, end, row_begin, row_end, threads, out.data());
    return array(std::move(out), {static_cast<size_t>(rows), static_cast<size_t>(matrix_.n)});
  }

 private:
  void product(const float* x, int64_t rows, int64_t begin, int64_t end, int64_t row_begin,
               int64_t row_end, int threads, float* out) const {
    const bool floats = is_float(matrix_.layout);
    Buffer memory = allocate(floats ? 64 : QuantizedRows::bytes(rows, matrix_.k, usual_products()));
    QuantizedRows q = QuantizedRows::in(memory.get(), rows, matrix_.k, usual_products());
    if (!floats) quantize_all(x, q);
    ThreadPool pool(threads);
    pool.run([&](int tid) {
      const int64_t from = begin + (end - begin) * tid / threads;
      const int64_t to = begin + (end - begin) * (tid + 1) / threads;
      if (floats) {
        linear_f32(matrix_, x, matrix_.k, row_begin, row_end, from, to, out, matrix_.n);
      } else {
        linear_q8(matrix_, q, row_begin, row_end, from, to, out, matrix_.n);
      }
    });
  }

  PanelMatrix matrix_;
  Buffer data_;
};

// x[M, K] -> q int8[M, K padded], scale, sum float32[M, groups].
auto quantize(const FloatMatrix& x) {
  const auto rows = static_cast<int64_t>(x.shape(0));
  const auto k = static_cast<int64_t>(x.shape(1));
  Buffer memory = allocate(QuantizedRows::bytes(rows, k, usual_products()));
  QuantizedRows out = QuantizedRows::in(memory.get(), rows, k, usual_products());
  if (out.bf16)
    throw std::invalid_argument("quantize_rows: rows are bfloat16 here; see round_rows");
  quantize_all(x.data(), out);
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<float> sum;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < out.groups; ++g) {
      q.insert(q.end(), out.q(r, g), out.q(r, g) + kGroup);
      scale.push_back(out.terms(r, g)->scale);
      sum.push_back(out.terms(r, g)->sum);
    }
  }
  const auto m = static_cast<size_t>(rows);
  const auto groups = static_cast<size_t>(out.groups);
  return std::make_tuple(array(std::move(q), {m, groups * kGroup}),
                         array(std::move(scale), {m, groups}), array(std::move(sum), {m, groups}));
}

}  // namespace

// x[M, K] as the products see it, float32[M, K].
auto round_rows(const FloatMatrix& x) {
  const auto rows = static_cast<int64_t>(x.shape(0));
  const auto k = static_cast<int64_t>(x.shape(1));
  Buffer memory = allocate(QuantizedRows::bytes(rows, k, usual_products()));
  QuantizedRows rounded = QuantizedRows::in(memory.get(), rows, k, usual_products());
  quantize_all(x.data(), rounded);
  std::vector<float> out(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) rounded.read_row(r, out.data() + r * k);
  return array(std::move(out), {x.shape(0), x.shape(1)});
}

void bind_linear(nb::module_& m) {
  m.def("active_isa", &active_isa,
        "The instruction set of the kernels: amxbf16, amx, avx512, avxvnni, avx2, neon or scalar.");
  m.def("has_bf16_products", &has_bf16_products,
        "Whether quantized weights can be multiplied in bfloat16 here.");
  m.def("multiplies_bf16", &needs_bf16, "Whether they always are, since OCTAVO_ISA is amxbf16.");
  m.def("round_rows", &round_rows, nb::arg("x"),
        "Activations float32[M, K] as the products see them, in int8 or bfloat16.");
  m.def("quantize_rows", &quantize, nb::arg("x"),
        "Activations [M, K] as (int8 q[M, K], scale[M, K/32], scale * sum[M, K/32]).");
  m.def(
      "packed_bytes",
      [](int source, int64_t n, int64_t k) {
        return plan_panels(static_cast<SourceType>(source), n, k, false, needs_bf16()).size_bytes();
      },
      nb::arg("source_type"), nb::arg("n"), nb::arg("k"), "Bytes of a packed [n, k] matrix.");
  m.def(
      "panel_type",
      [](int file_type) {
        return static_cast<int>(panel_type(static_cast<SourceType>(file_type)));
      },
      nb::arg("file_type"),
      "GGML type id whose panels hold a type's matrices: often its own; TABLE_PANELS for those that"
      " are kept as 4-bit codes with a table.");
  m.attr("TABLE_PANELS") = static_cast<int>(SourceType::kTable);
  m.def("measure_int8_peak", &measure_int8_peak, nb::arg("threads"), nb::arg("bits") = 4,
        nb::call_guard<nb::gil_scoped_release>(),
        "Best rate of int8 by weights of 4, 5, 6 or 8 bits in registers, operations/s.");
  m.def("measure_f32_peak", &measure_f32_peak, nb::arg("threads"),
        nb::call_guard<nb::gil_scoped_release>(), "Best float32 rate in registers, operations/s.");
  m.def("measure_bf16_peak", &measure_bf16_peak, nb::arg("threads"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Best rate of bf16 dot products in registers, operations/s; 0 without such instructions.");
  m.def("measure_read_speed", &measure_read_speed, nb::arg("bytes"), nb::arg("threads"),
        nb::arg("huge_pages") = true, nb::call_guard<nb::gil_scoped_release>(),
        "Best read rate, bytes/s, on pages of 2 MB or 4 kB.");
  m.def(
      "measure_linear",
      [](int source, int64_t n, int64_t k, int64_t rows, int threads, int64_t footprint,
         int repeats, bool as_float, bool bf16) {
        if (bf16 && !has_bf16_products()) throw std::invalid_argument("no products in bf16 here");
        return measure_linear(static_cast<SourceType>(source), n, k, as_float, rows, threads,
                              footprint, repeats, bf16 ? Products::kBf16 : usual_products());
      },
      nb::arg("source_type"), nb::arg("n"), nb::arg("k"), nb::arg("rows"), nb::arg("threads"),
      nb::arg("footprint"), nb::arg("repeats"), nb::arg("as_float") = false,
      nb::arg("bf16") = false, nb::call_guard<nb::gil_scoped_release>(),
      "Seconds of each of `repeats` products of a random [n, k] matrix with `rows` rows.");
  nb::class_<PackedMatrix>(m, "PackedMatrix", "Weights [N, K] in panels; for tests.")
      .def(nb::init<int, int64_t, int64_t, const Bytes&, bool>(), nb::arg("source_type"),
           nb::arg("n"), nb::arg("k"), nb::arg("raw"), nb::arg("as_float") = false)
      .def_prop_ro("size_bytes", &PackedMatrix::size_bytes)
      .def_prop_ro("num_panels", &PackedMatrix::num_panels)
      .def("unpack_row", &PackedMatrix::row, nb::arg("row"))
      .def("linear", &PackedMatrix::linear, nb::arg("x"), nb::arg("panel_begin") = 0,
           nb::arg("panel_end") = -1, nb::arg("row_begin") = 0, nb::arg("row_end") = -1,
           nb::arg("threads") = 1);
}

}  // namespace octavo
