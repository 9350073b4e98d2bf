// What octavo._native.Executor knows of low-rank adapters.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "runtime/executor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The arrays of changes, alive while they are packed.
struct Kept {
  std::vector<Bytes> bytes;
  std::vector<Floats> gains;
};

RawLowRank low_rank(nb::handle h, Kept& kept) {
  std::vector<Bytes>& keep = kept.bytes;
  const auto t = nb::cast<nb::tuple>(h);
  RawLowRank raw{};
  raw.matrix = nb::cast<int>(t[0]);
  raw.rank = nb::cast<int64_t>(t[1]);
  raw.down_type = static_cast<SourceType>(nb::cast<int>(t[2]));
  keep.push_back(nb::cast<Bytes>(t[3]));
  raw.down = keep.back().data();
  raw.down_bytes = keep.back().size();
  raw.up_type = static_cast<SourceType>(nb::cast<int>(t[4]));
  keep.push_back(nb::cast<Bytes>(t[5]));
  raw.up = keep.back().data();
  raw.up_bytes = keep.back().size();
  raw.scale = nb::cast<float>(t[6]);
  kept.gains.push_back(nb::cast<Floats>(t[7]));
  raw.gain = kept.gains.back().data();
  raw.gain_size = kept.gains.back().size();
  return raw;
}

}  // namespace

void bind_adapters(nb::class_<Executor>& c);  // called by bind.cpp

void bind_adapters(nb::class_<Executor>& c) {
  c.def("enable_adapters", &Executor::enable_adapters, "max_rank"_a, "places"_a);
  c.def(
      "load_adapter",
      [](Executor& e, int number, const nb::list& changes) {
        Kept keep;
        std::vector<RawLowRank> raw;
        for (nb::handle h : changes) raw.push_back(low_rank(h, keep));
        nb::gil_scoped_release release;
        e.load_adapter(number, raw);
      },
      "number"_a, "changes"_a,
      "changes: (matrix, rank, type and bytes of A, type and bytes of B, scale, gains) each."
      " No bytes of A: B replaces the matrix. No gains: all are 1.");
  c.def("unload_adapter", &Executor::unload_adapter, "number"_a);
  c.def(
      "low_rank",
      [](Executor& e, const std::string& rows, int in, std::vector<int> matrices) {
        e.add(make(LowRankSpec{rows == "logits" ? Rows::kLogits : Rows::kTokens, in,
                               std::move(matrices)}));
      },
      "rows"_a, "input"_a, "matrices"_a);
}

}  // namespace octavo
