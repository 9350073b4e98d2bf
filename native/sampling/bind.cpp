#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bindings.h"
#include "runtime/thread_pool.h"
#include "sampling/batch.h"
#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace nb = nanobind;

namespace octavo {
namespace {

void sample_rows(const float* logits, int64_t vocab, const NativeBatch& batch, const SampleOut& out,
                 int num_threads) {
  int64_t rows = batch.rows();
  int threads = static_cast<int>(std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(rows, 1)));
  std::vector<std::unique_ptr<SamplerScratch>> scratch;
  for (int t = 0; t < threads; ++t) scratch.push_back(std::make_unique<SamplerScratch>(vocab));
  std::atomic<int64_t> next{0};
  ThreadPool(threads).run([&](int tid) {
    for (int64_t r = next++; r < rows; r = next++) {
      sample_row(logits + r * vocab, vocab, batch.view(), r, out, *scratch[tid]);
    }
  });
}

nb::tuple sample(Array2<float> logits, const NativeBatch& batch, int num_threads) {
  int64_t rows = static_cast<int64_t>(logits.shape(0));
  int64_t vocab = static_cast<int64_t>(logits.shape(1));
  if (rows != batch.rows() || vocab < 1 || vocab > INT32_MAX) {
    throw std::invalid_argument("sampler: logits are [" + std::to_string(rows) + ", " +
                                std::to_string(vocab) + "], expected [" +
                                std::to_string(batch.rows()) + ", 1 or more]");
  }
  batch.check_vocab(vocab);
  ResultArrays result(rows, std::min<int64_t>(batch.top_n(), vocab), batch.listed_n());
  {
    nb::gil_scoped_release release;
    sample_rows(logits.data(), vocab, batch, result.out(), num_threads);
  }
  return result.take();
}

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<NativeBatch>(m, "SamplingBatch",
                          "A checked, borrowed view of a decoding.SamplingBatch's arrays.")
      .def("__init__", [](NativeBatch* self, nb::handle batch) { new (self) NativeBatch(batch); })
      .def_prop_ro("rows", &NativeBatch::rows)
      .def_prop_ro("top_n", &NativeBatch::top_n)
      .def_prop_ro("listed_n", &NativeBatch::listed_n);
  m.def("sample", &sample, nb::arg("logits").noconvert(), nb::arg("batch"),
        nb::arg("num_threads") = 1,
        "Sample one token per row of logits [R, V]; releases the GIL. Returns the fields of "
        "decoding.SampleResult in order.");
  m.def("philox_uniform", &philox_uniform, nb::arg("seed"), nb::arg("counter"),
        "The uniform number in [0, 1) that a seed and a position stand for.");
}

}  // namespace octavo
