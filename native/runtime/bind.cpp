// octavo._native.Executor and its friends: what backends/cpu drives.

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "runtime/bind_names.h"
#include "runtime/executor.h"
#include "runtime/measure.h"
#include "sampling/batch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints2 = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OptionalFloats = std::vector<float>;
using Heads = std::tuple<int, int64_t, int32_t>;

Executor::Kind kind_of(const std::string& products) {
  if (products == "int8") return Executor::Kind::kInt8;
  if (products == "bf16") return Executor::Kind::kBf16;
  if (products == "mixed") return Executor::Kind::kMixed;
  throw std::invalid_argument("executor: unknown products " + products);
}

EmbedBy embed_by(const std::string& name) {
  if (name == "tokens") return EmbedBy::kTokens;
  if (name == "positions") return EmbedBy::kPositions;
  if (name == "types") return EmbedBy::kTypes;
  throw std::invalid_argument("executor: unknown choice of rows " + name);
}

StepView view(const Ints& tokens, const Ints& positions, const Ints& slots, const Ints& query_start,
              const Ints& seq_len, const Ints2& block_table, const Ints& logit_rows,
              const Ints& types, const Ints& adapters, bool of_prompts) {
  StepView s;
  s.of_prompts = of_prompts;
  s.tokens = tokens.data();
  s.positions = positions.data();
  s.slots = slots.data();
  s.query_start = query_start.data();
  s.seq_len = seq_len.data();
  s.block_table = block_table.data();
  s.logit_rows = logit_rows.data();
  s.types = types.shape(0) == 0 ? nullptr : types.data();
  s.adapters = adapters.shape(0) == 0 ? nullptr : adapters.data();
  s.num_tokens = static_cast<int32_t>(tokens.shape(0));
  s.num_seqs = static_cast<int32_t>(seq_len.shape(0));
  s.num_rows = static_cast<int32_t>(logit_rows.shape(0));
  s.table_width = static_cast<int32_t>(block_table.shape(1));
  const size_t t = tokens.shape(0), n = seq_len.shape(0);
  if (positions.shape(0) != t || slots.shape(0) != t || query_start.shape(0) != n + 1 ||
      block_table.shape(0) < n || n == 0 || (s.types != nullptr && types.shape(0) != t) ||
      (s.adapters != nullptr && adapters.shape(0) != n)) {
    throw std::invalid_argument("executor: the arrays of a step disagree in length");
  }
  return s;
}

HeadsRef heads(nb::handle h) {
  const auto t = nb::cast<nb::tuple>(h);
  return {nb::cast<int>(t[0]), nb::cast<int64_t>(t[1]), nb::cast<int32_t>(t[2])};
}

Elementwise elementwise_of(const std::string& name) {
  if (name == "add") return Elementwise::kAdd;
  if (name == "mul") return Elementwise::kMul;
  if (name == "scale") return Elementwise::kScale;
  if (name == "silu") return Elementwise::kSilu;
  if (name == "gelu") return Elementwise::kGelu;
  if (name == "gelu_erf") return Elementwise::kGeluErf;
  if (name == "relu") return Elementwise::kRelu;
  if (name == "tanh") return Elementwise::kTanh;
  if (name == "softcap") return Elementwise::kSoftcap;
  throw std::invalid_argument("executor: unknown elementwise operator " + name);
}

KvType kv_type_of(const std::string& name) {
  if (name == "f32") return KvType::kF32;
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  if (name == "int8") return KvType::kInt8;
  if (name == "int4") return KvType::kInt4;
  throw std::invalid_argument("executor: unknown KV type " + name);
}

void bind_instructions(nb::class_<Executor>& c) {
  c.def(
      "embed",
      [](Executor& e, int matrix, int out, float scale, const std::string& by, int32_t offset) {
        const EmbedBy what = embed_by(by);
        if (what == EmbedBy::kTokens) e.limit_tokens(matrix);
        if (what == EmbedBy::kPositions) e.limit_positions(matrix, offset);
        if (what == EmbedBy::kTypes) e.limit_types(matrix);
        e.add(make(EmbedSpec{matrix, out, scale, what, offset}));
      },
      "matrix"_a, "out"_a, "scale"_a, "by"_a, "offset"_a);
  c.def(
      "norm",
      [](Executor& e, const std::string& rows, int in, std::vector<float> weight,
         std::vector<float> bias, bool centred, float eps, float offset, int out_f32, int out_q8) {
        e.add(make(NormSpec{rows_of(rows), in, std::move(weight), std::move(bias), centred, eps,
                            offset, out_f32, out_q8}));
      },
      "rows"_a, "input"_a, "weight"_a, "bias"_a, "centred"_a, "eps"_a, "offset"_a, "out_f32"_a,
      "out_q8"_a);
  c.def(
      "quantize",
      [](Executor& e, const std::string& rows, int in, int out, std::vector<int32_t> order) {
        e.add(make(QuantizeSpec{rows_of(rows), in, out, std::move(order)}));
      },
      "rows"_a, "input"_a, "out_q8"_a, "order"_a);
  c.def(
      "linear",
      [](Executor& e, const std::string& rows, int in, const nb::list& parts) {
        LinearSpec s{rows_of(rows), in, {}};
        for (nb::handle h : parts) {
          const auto t = nb::cast<nb::tuple>(h);
          s.parts.push_back({nb::cast<int>(t[0]), nb::cast<int>(t[1]), nb::cast<int64_t>(t[2]),
                             nb::cast<std::vector<float>>(t[3]), nb::cast<int>(t[4])});
        }
        e.add(make(std::move(s)));
      },
      "rows"_a, "input"_a, "parts"_a);
  c.def(
      "gated",
      [](Executor& e, const std::string& rows, int in, int gate, int up,
         const std::string& activation, std::vector<float> gate_bias, std::vector<float> up_bias,
         int out_f32, int out_q8) {
        e.add(make(GatedSpec{rows_of(rows), in, gate, up, activation_of(activation),
                             std::move(gate_bias), std::move(up_bias), out_f32, out_q8}));
      },
      "rows"_a, "input"_a, "gate"_a, "up"_a, "activation"_a, "gate_bias"_a, "up_bias"_a,
      "out_f32"_a, "out_q8"_a);
  c.def(
      "heads",
      [](Executor& e, nb::tuple q, nb::tuple k, nb::tuple v, int32_t head_dim,
         std::vector<float> q_norm, std::vector<float> k_norm, float eps, float norm_offset,
         int angles, int32_t half, bool interleaved, int layer) {
        e.add(
            make(HeadsSpec{heads(q), heads(k), heads(v), head_dim, std::move(q_norm),
                           std::move(k_norm), eps, norm_offset, angles, half, interleaved, layer}));
      },
      "q"_a, "k"_a, "v"_a, "head_dim"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "norm_offset"_a,
      "angles"_a, "half"_a, "interleaved"_a, "layer"_a);
  c.def(
      "angles",
      [](Executor& e, std::vector<float> inv_freq, float magnitude, int out) {
        e.add(make(AnglesSpec{std::move(inv_freq), magnitude, out}));
      },
      "inv_freq"_a, "magnitude"_a, "out"_a);
  c.def(
      "attention",
      [](Executor& e, nb::tuple q, std::vector<float> sinks, int layer, float scale, int32_t window,
         float softcap, bool causal, int out_f32, int out_q8) {
        if (!causal) e.require_whole_sequences();
        e.add(make(AttentionSpec{heads(q), std::move(sinks), layer, scale, window, softcap, causal,
                                 out_f32, out_q8}));
      },
      "q"_a, "sinks"_a, "layer"_a, "scale"_a, "window"_a, "softcap"_a, "causal"_a, "out_f32"_a,
      "out_q8"_a);
  c.def(
      "head_linear",
      [](Executor& e, const std::string& rows, int in, int matrix, int32_t num_heads, int out) {
        e.add(make(HeadLinearSpec{rows_of(rows), in, matrix, num_heads, out}));
      },
      "rows"_a, "input"_a, "matrix"_a, "num_heads"_a, "out"_a);
  c.def(
      "latent_write",
      [](Executor& e, int latent, int key, int layer) {
        e.add(make(LatentWriteSpec{latent, key, layer}));
      },
      "latent"_a, "key"_a, "layer"_a);
  c.def(
      "latent_attention",
      [](Executor& e, int q, int q_rope, int32_t num_heads, int layer, float scale, int out) {
        e.add(make(LatentAttentionSpec{q, q_rope, num_heads, layer, scale, out}));
      },
      "q"_a, "q_rope"_a, "num_heads"_a, "layer"_a, "scale"_a, "out"_a);
  c.def(
      "elementwise",
      [](Executor& e, const std::string& rows, const std::string& kind, int a, int b, int out,
         float value) {
        e.add(make(ElementwiseSpec{rows_of(rows), elementwise_of(kind), a, b, out, value}));
      },
      "rows"_a, "kind"_a, "a"_a, "b"_a, "out"_a, "value"_a);
  c.def(
      "select", [](Executor& e, int in, int out) { e.add(make(SelectSpec{in, out})); }, "input"_a,
      "out"_a);
  c.def(
      "mean", [](Executor& e, int in, int out) { e.add(make(MeanSpec{in, out})); }, "input"_a,
      "out"_a);
  c.def(
      "output",
      [](Executor& e, const std::string& rows, int in) {
        e.add(make(OutputSpec{rows_of(rows), in}));
      },
      "rows"_a, "input"_a);
}

}  // namespace

void bind_adapters(nb::class_<Executor>& c);  // bind_adapters.cpp
void bind_experts(nb::class_<Executor>& c);   // bind_experts.cpp

void bind_executor(nb::module_& m) {
  m.def("preferred_kv_dtype",
        [] { return runtime_kernels().preferred_kv == KvType::kBF16 ? "bf16" : "f16"; });
  m.def("measure_barrier", &measure_barrier, "threads"_a, "rounds"_a = 200, "repeats"_a = 100,
        nb::call_guard<nb::gil_scoped_release>(), "Seconds of one barrier, one number a repeat.");
  m.def("measure_region", &measure_region, "threads"_a, "rounds"_a = 200, "repeats"_a = 100,
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds of one region of an empty item a thread, one number a repeat.");
  m.def("measure_job", &measure_job, "threads"_a, "rounds"_a = 200, "repeats"_a = 100,
        nb::call_guard<nb::gil_scoped_release>(), "Seconds of one empty job, one number a repeat.");
  nb::class_<Executor> c(m, "Executor");
  c.def(
      "__init__",
      [](Executor* e, int num_threads, int64_t max_tokens, int64_t max_rows,
         const std::string& products) {
        new (e) Executor(num_threads, max_tokens, max_rows, kind_of(products));
      },
      "num_threads"_a, "max_tokens"_a, "max_rows"_a, "products"_a);
  c.def_prop_ro("num_threads", &Executor::num_threads);
  c.def_prop_ro("weight_bytes", &Executor::weight_bytes);
  c.def("set_profiling", &Executor::set_profiling, "on"_a);
  c.def("profile", &Executor::profile);
  c.def_prop_ro("scratch_bytes", &Executor::scratch_bytes);
  c.def(
      "plan_matrix",
      [](Executor& e, int source, int64_t n, int64_t k, bool as_float) {
        return e.plan_matrix(static_cast<SourceType>(source), n, k, as_float);
      },
      "source"_a, "n"_a, "k"_a, "as_float"_a);
  c.def("matrix_bytes", &Executor::matrix_bytes, "matrix"_a);
  c.def("allocate_weights", &Executor::allocate_weights);
  c.def("stand_in_weights", &Executor::stand_in_weights, "most_bytes"_a);
  c.def(
      "pack",
      [](Executor& e, const nb::list& tensors) {
        std::vector<Executor::Raw> raw;
        std::vector<Bytes> keep;  // the arrays, alive while packing
        for (nb::handle h : tensors) {
          const auto t = nb::cast<nb::tuple>(h);
          keep.push_back(nb::cast<Bytes>(t[1]));
          raw.push_back(
              {nb::cast<int>(t[0]), keep.back().data(), keep.back().size(), nb::cast<bool>(t[2])});
        }
        nb::gil_scoped_release release;
        e.pack(raw);
      },
      "tensors"_a);
  c.def("buffer_bytes", &Executor::buffer_bytes, "width"_a, "quantized"_a);
  c.def("place_buffer", &Executor::place_buffer, "width"_a, "quantized"_a, "offset"_a);
  c.def("place_scratch", &Executor::place_scratch, "num_bytes"_a, "offset"_a);
  c.def("allocate_arena", &Executor::allocate_arena, "num_bytes"_a);
  c.def("set_output_width", &Executor::set_output_width, "width"_a);
  c.def(
      "define_kv",
      [](Executor& e, const Executor::KvLayers& layers, const std::string& type,
         bool one_at_a_time) { return e.define_kv(layers, kv_type_of(type), one_at_a_time); },
      "layers"_a, "dtype"_a, "one_at_a_time"_a);
  c.def("allocate_kv", &Executor::allocate_kv, "num_blocks"_a);
  c.def(
      "copy_blocks",
      [](Executor& e, Ints2 pairs) {
        if (pairs.shape(1) != 2) throw std::invalid_argument("executor: pairs must be [n, 2]");
        e.copy_blocks(pairs.data(), static_cast<int64_t>(pairs.shape(0)));
      },
      "pairs"_a);
  c.def(
      "forward",
      [](Executor& e, Ints tokens, Ints positions, Ints slots, Ints query_start, Ints seq_len,
         Ints2 block_table, Ints logit_rows, Ints types, Ints adapters, bool of_prompts,
         FloatRows out) {
        const StepView s = view(tokens, positions, slots, query_start, seq_len, block_table,
                                logit_rows, types, adapters, of_prompts);
        if (out.shape(0) < logit_rows.shape(0) ||
            static_cast<int64_t>(out.shape(1)) != e.output_width()) {
          throw std::invalid_argument("executor: the logits array has the wrong shape");
        }
        float* data = out.data();
        nb::gil_scoped_release release;
        e.run(s, data);
      },
      "tokens"_a, "positions"_a, "slots"_a, "query_start"_a, "seq_len"_a, "block_table"_a,
      "logit_rows"_a, "types"_a, "adapters"_a, "of_prompts"_a, "out"_a);
  c.def(
      "step",
      [](Executor& e, Ints tokens, Ints positions, Ints slots, Ints query_start, Ints seq_len,
         Ints2 block_table, Ints logit_rows, Ints types, Ints adapters, bool of_prompts,
         const NativeBatch& batch) {
        const StepView s = view(tokens, positions, slots, query_start, seq_len, block_table,
                                logit_rows, types, adapters, of_prompts);
        batch.check_vocab(e.output_width());
        ResultArrays result(batch.rows(), std::min<int64_t>(batch.top_n(), e.output_width()),
                            batch.listed_n());
        {
          nb::gil_scoped_release release;
          e.run(s, batch.view(), result.out());
        }
        return result.take();
      },
      "tokens"_a, "positions"_a, "slots"_a, "query_start"_a, "seq_len"_a, "block_table"_a,
      "logit_rows"_a, "types"_a, "adapters"_a, "of_prompts"_a, "batch"_a);
  bind_instructions(c);
  bind_adapters(c);
  bind_experts(c);
}

}  // namespace octavo
