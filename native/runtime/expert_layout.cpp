#include "runtime/expert_layout.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace octavo {
namespace {

size_t aligned(size_t n) {
  return (n + 63) / 64 * 64;
}

// The most bytes that `pairs` rows of k columns take, however they fall to experts.
size_t most_row_bytes(const ExpertSizes& s, int64_t k, bool quantized) {
  const int64_t pairs = s.pairs();
  const size_t padding = 64 * static_cast<size_t>(s.most_active(pairs));
  if (!quantized) return static_cast<size_t>(pairs * k) * sizeof(float) + padding;
  return QuantizedRows::most_bytes(pairs, k, s.largest) + padding + QuantizedRows::kBeyond;
}

struct Offsets {
  size_t active, pair_of, place_of, hidden, in, total;
  explicit Offsets(const ExpertSizes& s) {
    const size_t pairs = static_cast<size_t>(s.pairs());
    active = 64;
    pair_of = active + aligned(sizeof(ExpertRows) * static_cast<size_t>(s.most_active(s.pairs())));
    place_of = pair_of + aligned(sizeof(int32_t) * pairs);
    hidden = place_of + aligned(sizeof(int32_t) * pairs);
    in = hidden + aligned(most_row_bytes(s, s.hidden, s.quantized_hidden));
    const size_t out = sizeof(float) * pairs * static_cast<size_t>(s.features);
    total = in + aligned(std::max(most_row_bytes(s, s.features, s.quantized_in), out));
  }
};

int32_t expert_of(float id, int64_t num_experts) {
  return id >= 0.0f && id < static_cast<float>(num_experts) ? static_cast<int32_t>(id) : 0;
}

}  // namespace

size_t expert_row_bytes(int64_t n, int64_t k, bool quantized, Products products) {
  return aligned(quantized ? QuantizedRows::exact_bytes(n, k, products)
                           : static_cast<size_t>(n * k) * sizeof(float));
}

ExpertScratch::ExpertScratch(const ExpertSizes& sizes, uint8_t* memory) {
  const Offsets at(sizes);
  num_active = reinterpret_cast<int32_t*>(memory);
  active = reinterpret_cast<ExpertRows*>(memory + at.active);
  pair_of = reinterpret_cast<int32_t*>(memory + at.pair_of);
  place_of = reinterpret_cast<int32_t*>(memory + at.place_of);
  hidden = memory + at.hidden;
  in = memory + at.in;
  out = reinterpret_cast<float*>(memory + at.in);
}

size_t ExpertScratch::bytes(const ExpertSizes& sizes) {
  return Offsets(sizes).total;
}

void sort_by_expert(const ExpertSizes& sizes, const float* routes, int64_t rows, Products products,
                    ExpertScratch& scratch) {
  const int64_t k = sizes.top_k;
  std::vector<int32_t> starts(static_cast<size_t>(sizes.num_experts) + 1);
  const auto expert_at = [&](int64_t row, int64_t rank) {
    return static_cast<size_t>(expert_of(routes[row * 2 * k + rank], sizes.num_experts));
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t rank = 0; rank < k; ++rank) ++starts[expert_at(row, rank) + 1];
  }
  int32_t first = 0, active = 0;
  size_t in_at = 0, hidden_at = 0;
  for (size_t e = 0; e < static_cast<size_t>(sizes.num_experts); ++e) {
    const int32_t count = starts[e + 1];
    starts[e] = first;
    if (count == 0) continue;
    scratch.active[active++] = {static_cast<int32_t>(e), first, count, in_at, hidden_at};
    first += count;
    in_at += expert_row_bytes(count, sizes.features, sizes.quantized_in, products);
    hidden_at += expert_row_bytes(count, sizes.hidden, sizes.quantized_hidden, products);
  }
  *scratch.num_active = active;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t rank = 0; rank < k; ++rank) {
      const int32_t place = starts[expert_at(row, rank)]++;
      scratch.pair_of[place] = static_cast<int32_t>(row * k + rank);
      scratch.place_of[row * k + rank] = place;
    }
  }
}

}  // namespace octavo
