// What octavo._native.Executor knows of mixtures of experts.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings.h"
#include "runtime/bind_names.h"
#include "runtime/executor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Ints2 = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

ExpertScores scores_of(const std::string& name) {
  if (name == "softmax") return ExpertScores::kSoftmax;
  if (name == "sigmoid") return ExpertScores::kSigmoid;
  if (name == "chosen_softmax") return ExpertScores::kChosenSoftmax;
  throw std::invalid_argument("executor: unknown scores of experts " + name);
}

// num_experts, top_k, features, hidden, quantized in, quantized hidden
using ExpertDims = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool>;

ExpertSizes sizes_of(const Executor& e, const ExpertDims& d) {
  return {e.most_rows(),  std::get<0>(d), std::get<1>(d), std::get<2>(d),
          std::get<3>(d), std::get<4>(d), std::get<5>(d), e.largest_products()};
}

using ThreeMatrices = std::vector<std::tuple<int, int, int>>;  // gate, up, down of each expert

// The columns that each expert reads, or none.
std::vector<int32_t> orders_of(const Ints2& orders, const ExpertSizes& s) {
  if (orders.size() == 0) return {};
  const int32_t *begin = orders.data(), *end = begin + orders.size();
  const bool fit = static_cast<int64_t>(orders.shape(0)) == s.num_experts &&
                   static_cast<int64_t>(orders.shape(1)) == s.features && s.quantized_in &&
                   s.features <= kTileFloats;
  if (!fit || !std::all_of(begin, end, [&](int32_t c) { return c >= 0 && c < s.features; })) {
    throw std::invalid_argument("executor: orders of other columns");
  }
  return {begin, end};
}

}  // namespace

void bind_experts(nb::class_<Executor>& c);  // called by bind.cpp

void bind_experts(nb::class_<Executor>& c) {
  c.def(
      "route",
      [](Executor& e, const std::string& rows, int in, int out, std::vector<float> bias,
         int64_t top_k, const std::string& scores, bool normalize, float scale, int64_t num_groups,
         int64_t top_groups, bool by_top2) {
        e.add(make(RouteSpec{rows_of(rows), in, out, std::move(bias), top_k, scores_of(scores),
                             normalize, scale, num_groups, top_groups, by_top2}));
      },
      "rows"_a, "input"_a, "out"_a, "bias"_a, "top_k"_a, "scores"_a, "normalize"_a, "scale"_a,
      "num_groups"_a, "top_groups"_a, "by_top2"_a);
  c.def(
      "experts_bytes",
      [](const Executor& e, const ExpertDims& dims) {
        return ExpertScratch::bytes(sizes_of(e, dims));
      },
      "dims"_a);
  c.def(
      "experts",
      [](Executor& e, const std::string& rows, const ExpertDims& dims, int in, int routes,
         int scratch, int out, int residual, const ThreeMatrices& matrices,
         std::vector<float> gate_bias, std::vector<float> up_bias, std::vector<float> down_bias,
         const std::string& activation, float alpha, float limit, const Ints2& in_order) {
        ExpertsSpec s{rows_of(rows),
                      in,
                      routes,
                      scratch,
                      out,
                      residual,
                      {},
                      {},
                      {},
                      std::move(gate_bias),
                      std::move(up_bias),
                      std::move(down_bias),
                      {},
                      activation_of(activation),
                      alpha,
                      limit};
        for (const auto& [gate, up, down] : matrices) {
          s.gate.push_back(gate);
          s.up.push_back(up);
          s.down.push_back(down);
        }
        const ExpertSizes sizes = sizes_of(e, dims);
        s.in_order = orders_of(in_order, sizes);
        if (static_cast<int64_t>(matrices.size()) != sizes.num_experts) {
          throw std::invalid_argument("executor: experts need three matrices each");
        }
        for (auto& instruction : make(std::move(s), sizes)) e.add(std::move(instruction));
      },
      "rows"_a, "dims"_a, "input"_a, "routes"_a, "scratch"_a, "out"_a, "residual"_a, "matrices"_a,
      "gate_bias"_a, "up_bias"_a, "down_bias"_a, "activation"_a, "alpha"_a, "limit"_a,
      "in_order"_a);
  c.def(
      "gate_rows",
      [](Executor& e, const std::string& rows, int in, int gate, int out) {
        e.add(make(GateRowsSpec{rows_of(rows), in, gate, out}));
      },
      "rows"_a, "input"_a, "gate"_a, "out"_a);
}

}  // namespace octavo
