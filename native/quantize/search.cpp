#include "quantize/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo::quantize {
namespace {

constexpr int kLanes = 8;  // sums run in lanes, so that the compiler may use vectors
constexpr int kRefits = 3;

// The whole number nearest to v within low .. high, which are whole and small. Adding and taking
// away 1.5 * 2^23 rounds to nearest even, and compilers turn it into vectors, which they do to no
// rint.
float rounded(float v, float low, float high) {
  constexpr float kRound = 12582912.0f;
  return (std::min(std::max(v, low), high) + kRound) - kRound;
}

struct Sums {
  float w = 0, x = 0, l = 0, xl = 0, ll = 0;
};

float total(const float* lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

// Weighted sums over numbers x and their levels: round((x - offset) * inverse) in low .. high.
Sums sums_of(const float* x, const float* w, int n, float inverse, float offset, float low,
             float high) {
  float sw[kLanes] = {}, sx[kLanes] = {}, sl[kLanes] = {}, sxl[kLanes] = {}, sll[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float v = x[i + j], weight = w[i + j];
      const float l = rounded((v - offset) * inverse, low, high);
      sw[j] += weight;
      sx[j] += weight * v;
      sl[j] += weight * l;
      sxl[j] += weight * v * l;
      sll[j] += weight * l * l;
    }
  }
  return {total(sw), total(sx), total(sl), total(sxl), total(sll)};
}

// Least squares for scale and offset given the levels; false where they do not determine it.
bool solve(const Sums& s, bool below, Affine& out) {
  const float det = s.w * s.ll - s.l * s.l;
  if (!(det > 0)) return false;
  float scale = (s.w * s.xl - s.x * s.l) / det;
  float offset = (s.ll * s.x - s.l * s.xl) / det;
  if (below && offset > 0) {
    offset = 0;
    scale = s.xl / s.ll;
  }
  if (!(scale > 0)) return false;
  out = {scale, offset};
  return true;
}

}  // namespace

float rounding_error(const float* x, const float* w, int n, Affine a, int low, int high) {
  const float inverse = a.scale != 0 ? 1.0f / a.scale : 0.0f;
  const float bottom = static_cast<float>(low), top = static_cast<float>(high);
  float error[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float l = rounded((x[i + j] - a.offset) * inverse, bottom, top);
      const float d = a.scale * l + a.offset - x[i + j];
      error[j] += w[i + j] * d * d;
    }
  }
  return total(error);
}

Affine search_affine(const float* x, const float* w, int n, int top, bool below) {
  float low = *std::min_element(x, x + n);
  const float high = *std::max_element(x, x + n);
  if (below) low = std::min(low, 0.0f);
  if (!(high > low)) return below ? Affine{0, low} : Affine{0, high};
  const float range = high - low, levels = static_cast<float>(top);
  Affine best{range / levels, low};
  float least = rounding_error(x, w, n, best, 0, top);
  for (int step = -10; step <= 10; ++step) {
    Affine a{range / (levels + 0.1f * static_cast<float>(step) + 0.1f), low};
    for (int refit = 0; refit < kRefits; ++refit) {
      const Sums s = sums_of(x, w, n, 1.0f / a.scale, a.offset, 0, levels);
      if (!solve(s, below, a)) break;
      const float error = rounding_error(x, w, n, a, 0, top);
      if (error < least) {
        least = error;
        best = a;
      } else if (refit > 0) {
        break;
      }
    }
  }
  return best;
}

float search_scale(const float* x, const float* w, int n, int low, int high) {
  const float* largest =
      std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float peak = *largest;
  if (peak == 0) return 0;
  float best = 0, least = std::numeric_limits<float>::infinity();
  // The largest number lies on the longer side of the levels or on the other.
  for (const int end : {low, high}) {
    for (int step = -4; step <= 4; ++step) {
      const float reach = static_cast<float>(end) * (1.0f + 0.04f * static_cast<float>(step));
      Affine a{peak / reach, 0};
      for (int refit = 0; refit < kRefits; ++refit) {
        const float error = rounding_error(x, w, n, a, low, high);
        if (error < least) {
          least = error;
          best = a.scale;
        } else if (refit > 0) {
          break;
        }
        const Sums s =
            sums_of(x, w, n, 1.0f / a.scale, 0, static_cast<float>(low), static_cast<float>(high));
        if (!(s.ll > 0)) break;
        a.scale = s.xl / s.ll;
        if (a.scale == 0) break;
      }
    }
  }
  return best;
}

}  // namespace octavo::quantize
