// octavo._native.quantize_blocks and gptq_blocks, wrapped by octavo.quantize.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "bindings.h"
#include "quantize/format.h"
#include "quantize/gptq.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using quantize::Format;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Blocks = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const Format& format_of(uint32_t type, size_t columns) {
  const Format* format = quantize::find_format(type);
  if (format == nullptr || columns % static_cast<size_t>(format->block) != 0) {
    throw nb::value_error("quantize: unknown type or a partial block");
  }
  return *format;
}

// f(row) for every row, on several threads. Rows do not depend on each other. Where the system
// gives no further thread, the calling one does the rest.
void for_rows(size_t rows, int threads, const std::function<void(size_t)>& f) {
  const size_t share = std::max<size_t>(1, (rows + threads - 1) / std::max(threads, 1));
  const auto run = [&](size_t start, size_t stop) {
    for (size_t row = start; row < std::min(stop, rows); ++row) f(row);
  };
  std::vector<std::thread> workers;
  size_t start = share;
  try {
    for (; start < rows; start += share) {
      workers.emplace_back([&run, start, share] { run(start, start + share); });
    }
  } catch (const std::system_error&) {
    run(start, rows);
  }
  run(0, share);
  for (std::thread& worker : workers) worker.join();
}

void check(bool holds) {
  if (!holds) throw nb::value_error("quantize: arrays of sizes that do not fit each other");
}

void quantize_blocks(const ConstMatrix& x, const std::optional<Vector>& importance, uint32_t type,
                     const Blocks& out, int threads) {
  const size_t rows = x.shape(0), columns = x.shape(1);
  const Format& format = format_of(type, columns);
  const size_t row_bytes = columns / format.block * format.bytes;
  check(out.shape(0) == rows && out.shape(1) == row_bytes);
  check(!importance || importance->shape(0) == columns);
  const float* weights = importance ? importance->data() : nullptr;
  const nb::gil_scoped_release release;
  for_rows(rows, threads, [&](size_t row) {
    for (size_t at = 0; at < columns; at += format.block) {
      quantize::quantize_block(format, x.data() + row * columns + at,
                               weights ? weights + at : nullptr,
                               out.data() + row * row_bytes + at / format.block * format.bytes);
    }
  });
}

// Columns start .. start + block of x[rows, columns]; `error` [rows, block]; out [rows, bytes].
void gptq_blocks(const Matrix& x, size_t start, const ConstMatrix& factor,
                 const std::optional<Vector>& importance, uint32_t type, const Matrix& error,
                 const Blocks& out, int threads) {
  const size_t rows = x.shape(0), columns = x.shape(1);
  const Format& format = format_of(type, columns);
  const auto block = static_cast<size_t>(format.block);
  check(start + block <= columns && factor.shape(0) == block && factor.shape(1) == block);
  check(error.shape(0) == rows && error.shape(1) == block && out.shape(0) == rows);
  check(out.shape(1) == static_cast<size_t>(format.bytes));
  check(!importance || importance->shape(0) == block);
  const float* weights = importance ? importance->data() : nullptr;
  const nb::gil_scoped_release release;
  for_rows(rows, threads, [&](size_t row) {
    quantize::gptq_block(format, x.data() + row * columns + start, factor.data(), weights,
                         error.data() + row * block, out.data() + row * format.bytes);
  });
}

}  // namespace

void bind_quantize(nb::module_& m) {
  m.def("quantize_blocks", &quantize_blocks, nb::arg("x"), nb::arg("importance").none(),
        nb::arg("ggml_type"), nb::arg("out"), nb::arg("threads"),
        "Write rows of float32 as blocks of a GGML type; releases the GIL.");
  m.def("gptq_blocks", &gptq_blocks, nb::arg("x"), nb::arg("start"), nb::arg("factor"),
        nb::arg("importance").none(), nb::arg("ggml_type"), nb::arg("error"), nb::arg("out"),
        nb::arg("threads"), "One block of columns by GPTQ; changes x, fills error and out.");
}

}  // namespace octavo
