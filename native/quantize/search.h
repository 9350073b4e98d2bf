// Searches for the scales of a group of numbers that cost the least weighted squared error.
#pragma once

#include <cstdint>

namespace octavo::quantize {

struct Affine {
  float scale = 0;
  float offset = 0;
};

// number = scale * q + offset with q in 0 .. top. below: the offset must not be above 0.
//
// The method is the usual one for K-quants: many first guesses of the step; for each, round, solve
// the weighted least squares for scale and offset, round again; the best by error is kept.
Affine search_affine(const float* x, const float* w, int n, int top, bool below);

// number = scale * level with whole levels in low .. high; the scale may be negative.
float search_scale(const float* x, const float* w, int n, int low, int high);

// Weighted squared error of rounding x to scale * q + offset, q whole in low .. high.
float rounding_error(const float* x, const float* w, int n, Affine a, int low, int high);

}  // namespace octavo::quantize
