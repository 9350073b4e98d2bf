// How the panels of products of few rows are cut into items.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/panel.h"

namespace octavo {

// Panels of some matrices, one after the other, as items: every thread's share (claims.h) is one
// run of panels, all shares have about as many bytes, and items begin at a multiple of four panels
// of their share, since so many are read at once.
class PanelItems {
 public:
  struct Part {
    int64_t panels;
    size_t panel_bytes;
  };

  // Items of about item_bytes; returns their number.
  int64_t cut(const std::vector<Part>& parts, int threads, size_t item_bytes) {
    size_t bytes = 0;
    int64_t panels = 0;
    for (const Part& p : parts) {
      bytes += static_cast<size_t>(p.panels) * p.panel_bytes;
      panels += p.panels;
    }
    const size_t share = bytes / static_cast<size_t>(threads);
    const int64_t wanted = static_cast<int64_t>((share + item_bytes / 2) / item_bytes);
    const int64_t items =
        std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, panels / threads / kAtOnce));
    bounds_.assign(1, 0);
    for (int t = 0; t < threads; ++t) {
      const int64_t begin = bounds_.back();
      const int64_t end = t + 1 == threads
                              ? panels
                              : std::max(begin, place_of(parts, bytes * static_cast<size_t>(t + 1) /
                                                                    static_cast<size_t>(threads)));
      for (int64_t i = 1; i < items; ++i) {
        const int64_t at = (end - begin) * i / items + kAtOnce / 2;
        bounds_.push_back(std::min(end, begin + at / kAtOnce * kAtOnce));
      }
      bounds_.push_back(end);
    }
    return items * threads;
  }

  int64_t begin(int64_t item) const { return bounds_[item]; }
  int64_t end(int64_t item) const { return bounds_[item + 1]; }

 private:
  static constexpr int64_t kAtOnce = 4;
  static constexpr int64_t kUnit = 2;  // panels whose results are a group to be quantized

  // The panel, of all parts in a row, that lies at `byte`; a multiple of kUnit.
  static int64_t place_of(const std::vector<Part>& parts, size_t byte) {
    int64_t first = 0;
    for (const Part& p : parts) {
      const size_t size = static_cast<size_t>(p.panels) * p.panel_bytes;
      if (byte < size) {
        const int64_t at = first + static_cast<int64_t>(byte / p.panel_bytes);
        return (at + kUnit / 2) / kUnit * kUnit;
      }
      byte -= size;
      first += p.panels;
    }
    return first;
  }

  std::vector<int64_t> bounds_;
};

}  // namespace octavo
