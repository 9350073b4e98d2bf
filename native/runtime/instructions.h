// The instructions a program is made of. Buffers and matrices are named by index into the
// executor's tables; -1 is "none". Widths are checked when an instruction is added.
#pragma once

#include <memory>
#include <vector>

#include "runtime/expert_layout.h"
#include "runtime/step.h"

namespace octavo {

enum class Activation : int32_t { kNone, kSilu, kGelu, kGeluErf, kClampedSwiglu };
enum class Elementwise : int32_t {
  kAdd,
  kMul,
  kScale,
  kSilu,
  kGelu,
  kGeluErf,
  kRelu,
  kTanh,
  kSoftcap
};
// What chooses a token's row of a table.
enum class EmbedBy : int32_t { kTokens, kPositions, kTypes };
enum class ExpertScores : int32_t { kSoftmax, kSigmoid, kChosenSoftmax };

// buffer[t] = table row tokens[t], positions[t] + offset, or types[t], times scale.
struct EmbedSpec {
  int matrix;
  int out;
  float scale;
  EmbedBy by;
  int32_t offset;
};

// Each run of weight.size() elements of a row normalised; to out_f32, out_q8 or both. centred: a
// layer norm of whole rows, plus bias if there is one; else an RMS norm.
struct NormSpec {
  Rows rows;
  int in;
  std::vector<float> weight;
  std::vector<float> bias;
  bool centred;
  float eps;
  float offset;
  int out_f32;
  int out_q8;
};

// order: element i of a row is element order[i] of the input's row; empty: as they are.
struct QuantizeSpec {
  Rows rows;
  int in;
  int out_q8;
  std::vector<int32_t> order;
};

// out[:, column:column + n] = in * matrix^T + bias (+ residual[:, column: ...]). out -1: the
// logits.
struct LinearPart {
  int matrix;
  int out;
  int64_t column;
  std::vector<float> bias;  // empty: none
  int residual;
};
struct LinearSpec {
  Rows rows;
  int in;
  std::vector<LinearPart> parts;
};

// out = act(in * gate^T + gate_bias) * (in * up^T + up_bias).
struct GatedSpec {
  Rows rows;
  int in;
  int gate;
  int up;
  Activation activation;
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  int out_f32;
  int out_q8;
};

// A run of heads in a buffer: `count` heads of head_dim from `column`.
struct HeadsRef {
  int buffer;
  int64_t column;
  int32_t count;
};

// Per head: norm (if a weight is given), rotation (if inv_freq is given), KV write (if k and v
// are).
struct HeadsSpec {
  HeadsRef q;  // count 0: none
  HeadsRef k;
  HeadsRef v;
  int32_t head_dim;
  std::vector<float> q_norm;
  std::vector<float> k_norm;
  float eps;
  float norm_offset;
  int angles;  // buffer of cos/sin, -1: no rotation
  int32_t half;
  bool interleaved;
  int layer;  // -1: no write
};

// buffer[t] = cos and sin of positions[t] * inv_freq, each times magnitude.
struct AnglesSpec {
  std::vector<float> inv_freq;
  float magnitude;
  int out;
};

struct AttentionSpec {
  HeadsRef q;
  std::vector<float> sinks;  // one a query head; empty: none
  int layer;
  float scale;
  int32_t window;
  float softcap;
  bool causal;  // else every sequence of a step is whole
  int out_f32;
  int out_q8;
};

// Head h of a row times rows h * n to (h + 1) * n of the matrix, n being its rows / num_heads.
struct HeadLinearSpec {
  Rows rows;
  int in;  // [rows][num_heads * k]
  int matrix;
  int32_t num_heads;
  int out;  // [rows][num_heads * n]
};

// Each token's latent and rotated key into the cache of a layer.
struct LatentWriteSpec {
  int latent;
  int key;
  int layer;
};

// Attention over latents: q and q_rope hold num_heads pieces of the layer's latent and key sizes.
struct LatentAttentionSpec {
  int q;
  int q_rope;
  int32_t num_heads;
  int layer;
  float scale;
  int out;
};

struct ElementwiseSpec {
  Rows rows;
  Elementwise kind;
  int a;
  int b;
  int out;
  float value;
};

// out = ids of the top_k best of each row's scores, then their weights. See graph/ops.py.
struct RouteSpec {
  Rows rows;
  int in;
  int out;
  std::vector<float> bias;  // empty: none
  int64_t top_k;
  ExpertScores scores;
  bool normalize;
  float scale;
  int64_t num_groups;
  int64_t top_groups;
  bool by_top2;  // else a group counts as its best
};

// out = (residual +) the weighted sum of each row's experts. in_order: expert e's gate and up read
// element in_order[e][i] of a row as their column i, quantized in that order from a row of floats;
// empty: as they are.
struct ExpertsSpec {
  Rows rows;
  int in;
  int routes;
  int scratch;
  int out;
  int residual;           // -1: none
  std::vector<int> gate;  // one matrix an expert
  std::vector<int> up;
  std::vector<int> down;
  std::vector<float> gate_bias;  // [expert][hidden]; empty: none
  std::vector<float> up_bias;
  std::vector<float> down_bias;   // [expert][features]
  std::vector<int32_t> in_order;  // [expert][features]
  Activation activation;
  float alpha;
  float limit;
};

// out = in * sigmoid(gate of the row)
struct GateRowsSpec {
  Rows rows;
  int in;
  int gate;
  int out;
};

// out[r] = in[logit_rows[r]]
struct SelectSpec {
  int in;
  int out;
};

// out[r] = mean of the rows of logit_rows[r]'s sequence in this step
struct MeanSpec {
  int in;
  int out;
};

// Copies a float buffer to the logits (graphs whose output is not a product).
struct OutputSpec {
  Rows rows;
  int in;
};

std::unique_ptr<Instruction> make(EmbedSpec spec);
std::unique_ptr<Instruction> make(NormSpec spec);
std::unique_ptr<Instruction> make(QuantizeSpec spec);
std::unique_ptr<Instruction> make(LinearSpec spec);
std::unique_ptr<Instruction> make(GatedSpec spec);
std::unique_ptr<Instruction> make(HeadsSpec spec);
std::unique_ptr<Instruction> make(AnglesSpec spec);
std::unique_ptr<Instruction> make(AttentionSpec spec);
std::unique_ptr<Instruction> make(HeadLinearSpec spec);
std::unique_ptr<Instruction> make(LatentWriteSpec spec);
std::unique_ptr<Instruction> make(LatentAttentionSpec spec);
std::unique_ptr<Instruction> make(ElementwiseSpec spec);
std::unique_ptr<Instruction> make(RouteSpec spec);
std::unique_ptr<Instruction> make(GateRowsSpec spec);
// One after the other; they share the scratch.
std::vector<std::unique_ptr<Instruction>> make(ExpertsSpec spec, const ExpertSizes& sizes);
std::unique_ptr<Instruction> make(SelectSpec spec);
std::unique_ptr<Instruction> make(MeanSpec spec);
std::unique_ptr<Instruction> make(OutputSpec spec);
// One after the other, at the end of a program.
std::vector<std::unique_ptr<Instruction>> make_sampling();

}  // namespace octavo
