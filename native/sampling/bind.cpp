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
  const int64_t rows = batch.rows(), pieces = RowScan::pieces(vocab);
  const SamplingView& view = batch.view();
  const int64_t most = std::max<int64_t>(rows * pieces, 1);
  ThreadPool pool(static_cast<int>(std::clamp<int64_t>(num_threads, 1, most)));
  const auto share = [&](int64_t count, auto&& f) {
    std::atomic<int64_t> next{0};
    pool.run([&](int tid) {
      for (int64_t i = next++; i < count; i = next++) f(i, tid);
    });
  };
  // With fewer rows than threads all of them look at each row first, as in a step.
  std::vector<std::unique_ptr<RowScan>> scans;
  for (int64_t r = 0; rows < pool.size() && r < rows; ++r) {
    scans.push_back(std::make_unique<RowScan>(vocab));
    RowScan& scan = *scans.back();
    const float* x = logits + r * vocab;
    if (RowScan::looks(view, r)) share(pieces, [&](int64_t p, int) { scan.look(x, vocab, p); });
    if (RowScan::weighs(view, r, vocab)) {
      share(pieces, [&](int64_t p, int) { scan.weigh(x, vocab, view, r, p); });
    }
  }
  std::vector<std::unique_ptr<SamplerScratch>> scratch;
  for (int t = 0; t < pool.size(); ++t) scratch.push_back(std::make_unique<SamplerScratch>(vocab));
  share(rows, [&](int64_t r, int tid) {
    const RowScan* scan = scans.empty() ? nullptr : scans[static_cast<size_t>(r)].get();
    sample_row(logits + r * vocab, vocab, view, r, out, *scratch[static_cast<size_t>(tid)], scan);
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
