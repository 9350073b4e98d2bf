// Which experts a row goes to, and rows multiplied by a gate of their own.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "runtime/instructions.h"

namespace octavo {
namespace {

// Softmax or sigmoid of a row's logits, and the choice among them.
class Route : public Instruction {
 public:
  explicit Route(RouteSpec spec) : s_(std::move(spec)) {}
  const char* name() const override { return "route"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch& scratch) override {
    const Buffer& in = ctx.buffer(s_.in);
    const Buffer& out = ctx.buffer(s_.out);
    float* scores = scratch.tile;
    float* choice = scores + in.width;
    bool* taken = reinterpret_cast<bool*>(choice + in.width);
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      score(in.f32 + r * in.width, in.width, scores);
      for (int64_t e = 0; e < in.width; ++e) {
        choice[e] = s_.bias.empty() ? scores[e] : scores[e] + s_.bias[e];
      }
      std::fill_n(taken, in.width, false);
      choose(scores, choice, taken, in.width, out.f32 + r * out.width);
    }
  }

 private:
  static constexpr float kClosed = -std::numeric_limits<float>::infinity();

  static void softmax(float* x, int64_t n) {
    float top = x[0], sum = 0.0f;
    for (int64_t i = 1; i < n; ++i) top = std::max(top, x[i]);
    for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - top);
    for (int64_t i = 0; i < n; ++i) x[i] /= sum;
  }

  void score(const float* logits, int64_t n, float* scores) const {
    std::copy(logits, logits + n, scores);
    if (s_.scores == ExpertScores::kSoftmax) softmax(scores, n);
    if (s_.scores == ExpertScores::kSigmoid) {
      for (int64_t i = 0; i < n; ++i) scores[i] = 1.0f / (1.0f + std::exp(-scores[i]));
    }
  }

  // The best of n, ties to the lower, and it is not chosen again. NaN is never better; where there
  // is nothing else, the first that is left is taken all the same, so that all are different.
  static int64_t take_best(const float* choice, bool* taken, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i) {
      if (!taken[i] && (best < 0 || choice[i] > choice[best])) best = i;
    }
    taken[best] = true;
    return best;
  }

  // Shuts the experts whose group is not among the best.
  void shut_groups(const float* choice, bool* taken, int64_t n) const {
    if (s_.num_groups == s_.top_groups) return;
    const int64_t size = n / s_.num_groups;
    std::vector<float> score(static_cast<size_t>(s_.num_groups));
    for (int64_t g = 0; g < s_.num_groups; ++g) {
      float first = kClosed, second = kClosed;
      for (int64_t i = g * size; i < (g + 1) * size; ++i) {
        second = std::max(second, std::min(first, choice[i]));
        first = std::max(first, choice[i]);
      }
      score[static_cast<size_t>(g)] = s_.by_top2 ? first + second : first;
    }
    const auto open = std::make_unique<bool[]>(static_cast<size_t>(s_.num_groups));
    for (int64_t i = 0; i < s_.top_groups; ++i) take_best(score.data(), open.get(), s_.num_groups);
    for (int64_t i = 0; i < n; ++i) taken[i] = !open[static_cast<size_t>(i / size)];
  }

  void choose(const float* scores, const float* choice, bool* taken, int64_t n, float* out) const {
    const int64_t k = s_.top_k;
    shut_groups(choice, taken, n);
    float sum = 0.0f;
    for (int64_t rank = 0; rank < k; ++rank) {
      const int64_t e = take_best(choice, taken, n);
      out[rank] = static_cast<float>(e);
      out[k + rank] = scores[e];
    }
    if (s_.scores == ExpertScores::kChosenSoftmax) softmax(out + k, k);
    for (int64_t rank = 0; rank < k; ++rank) sum += out[k + rank];
    const float factor = s_.normalize ? s_.scale / (sum + 1e-20f) : s_.scale;
    for (int64_t rank = 0; rank < k; ++rank) out[k + rank] *= factor;
  }

  RouteSpec s_;
  RowItems items_;
};

// out = x * sigmoid(gate[row]).
class GateRows : public Instruction {
 public:
  explicit GateRows(GateRowsSpec spec) : s_(spec) {}
  const char* name() const override { return "gate_rows"; }
  int64_t prepare(RunContext& ctx) override {
    return items_.cut(ctx.rows(s_.rows), ctx.pool->size());
  }
  void run(RunContext& ctx, int64_t item, ThreadScratch&) override {
    const Buffer& in = ctx.buffer(s_.in);
    const float* gate = ctx.buffer(s_.gate).f32;
    for (int64_t r = items_.begin(item); r < items_.end(item); ++r) {
      const float factor = 1.0f / (1.0f + std::exp(-gate[r]));
      ctx.kernels->scale(in.f32 + r * in.width, ctx.buffer(s_.out).f32 + r * in.width, in.width,
                         factor);
    }
  }

 private:
  GateRowsSpec s_;
  RowItems items_;
};

}  // namespace

std::unique_ptr<Instruction> make(RouteSpec s) {
  return std::make_unique<Route>(std::move(s));
}
std::unique_ptr<Instruction> make(GateRowsSpec s) {
  return std::make_unique<GateRows>(s);
}

}  // namespace octavo
