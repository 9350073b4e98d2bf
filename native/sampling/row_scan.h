// Between sampler.cpp and row_scan.cpp: what the settings of a row ask for.
#pragma once

#include "sampling/sampler.h"

namespace octavo {

inline bool has(const int32_t* start, int64_t row) {
  return start[row + 1] > start[row];
}

bool penalises(const SamplingView& view, int64_t row);
bool changes_logits(const SamplingView& view, int64_t row);
Weighing weighing(const SamplingView& view, int64_t row, float peak);

}  // namespace octavo
