// Products and quantization above the instruction sets: which tile comes when.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/bf16_rows.h"
#include "kernels/kernel_table.h"
#include "kernels/panel.h"

namespace octavo {
namespace {

// Quantized activations that stay in L2 (1 MB on current servers) beside a block of weights.
constexpr int64_t kChunkBytes = 384 * 1024;

// Most groups of a panel, and most panels, that are unpacked at once: 196 kB.
constexpr int64_t kExpandedGroups = 64;
constexpr int64_t kExpandedPanels = 4;

// Calls f(first row, rows) for pieces of [begin, end) of at most `most` rows, as even as they come.
template <typename F>
void for_row_pieces(int64_t begin, int64_t end, int64_t most, F&& f) {
  while (begin < end) {
    const int64_t left = end - begin;
    const int64_t pieces = left <= most ? 1 : (left + most - 1) / most;
    const int64_t rows = pieces == 1 ? left : (left + pieces - 1) / pieces;
    f(begin, static_cast<int>(rows));
    begin += rows;
  }
}

// Rows of activations that are streamed past each block of panels: a multiple of the tile.
int64_t chunk_rows(const QuantizedRows& x) {
  const int64_t tiles = kChunkBytes / static_cast<int64_t>(x.tile_stride());
  return std::max<int64_t>(tiles, 2) * x.tile;
}

// Rows [row_begin, row_end) by panels [panel_begin, panel_end).
struct QuantProduct : ProductArgs {
  const KernelTable& table;

  // Few rows, of one tile.
  bool is_stream() const {
    return row_end - row_begin <= table.stream_rows && row_begin / x.tile == (row_end - 1) / x.tile;
  }

  // Those by several panels at a time, which are as many streams of memory.
  void streamed() const {
    const int rows = static_cast<int>(row_end - row_begin);
    for (int64_t p = panel_begin; p < panel_end;) {
      const StreamKernel kernel = table.quant_stream(matrix.source, rows, panel_end - p);
      tiles(
          row_begin, row_end, p, panel(p), 0, x.groups, rows, nullptr,
          [&](int) { return kernel.run; }, kernel.panels);
      p += kernel.panels;
    }
  }

  // A chunk of rows at a time by each panel as it is stored.
  void stored() const {
    const int64_t chunk = chunk_rows(x);
    for (int64_t row = row_begin; row < row_end;) {
      const int64_t next = std::min(row_end, row - row % x.tile + chunk);
      for (int64_t p = panel_begin; p < panel_end; ++p) {
        tiles(row, next, p, panel(p), 0, x.groups, table.quant_rows, nullptr,
              [&](int rows) { return table.quant(matrix.source, rows); });
      }
      row = next;
    }
  }

  // A block of columns of some panels at a time, unpacked, by all rows. What is unpacked stays in
  // L2, a tile of rows in L1.
  void expanded(const ExpandedKernels& kernels) const {
    if (kernels.open != nullptr) kernels.open();
    constexpr size_t kPanelBytes = kExpandedGroups * kExpandedGroupBytes;
    static_assert(kWideGroups * kWideGroupBytes <= kPanelBytes);
    alignas(64) static thread_local uint8_t memory[kExpandedPanels * kPanelBytes];
    const int64_t panels = row_end - row_begin < kernels.many_rows ? 1 : kExpandedPanels;
    for (int64_t first = panel_begin; first < panel_end; first += panels) {
      const int64_t last = std::min(first + panels, panel_end);
      for (int64_t begin = 0; begin < x.groups; begin += kernels.groups) {
        const int64_t end = std::min(begin + kernels.groups, x.groups);
        const auto unpacked = [&](int64_t p) {
          return memory + static_cast<size_t>(p - first) * kPanelBytes;
        };
        for (int64_t p = first; p < last; ++p) kernels.expand(panel(p), begin, end, unpacked(p));
        const int64_t offset = row_begin % x.tile;
        for (int64_t tile = row_begin - offset; tile < row_end; tile += x.tile) {
          const int64_t row = std::max(tile, row_begin), next = std::min(tile + x.tile, row_end);
          const int64_t step = kernels.all_panels ? last - first : 1;
          for (int64_t p = first; p < last; p += step) {
            // Beside the first tile, what is unpacked next.
            const uint8_t* ahead = row == row_begin ? following(p, end, panels) : nullptr;
            tiles(
                row, next, p, unpacked(p), begin, end, kernels.most_rows, ahead,
                [&](int rows) { return kernels.tiles[rows - 1]; }, static_cast<int>(step),
                kPanelBytes);
          }
        }
      }
    }
    if (kernels.close != nullptr) kernels.close();
  }

 private:
  const uint8_t* panel(int64_t p) const {
    return matrix.data + static_cast<size_t>(p) * matrix.panel_bytes;
  }

  // Groups [end, ...) of panel p, or if there are none the panel that takes its place next.
  const uint8_t* following(int64_t p, int64_t end, int64_t panels) const {
    if (end == x.groups) return panel(p + panels);
    return panel(p) + matrix.panel_bytes * static_cast<size_t>(end) / static_cast<size_t>(x.groups);
  }

  // Rows [from, to) by groups [begin, end) of panel p and those after it, which are at `data`, so
  // many bytes apart if they are unpacked; at most most_rows at a time.
  template <typename Kernels>
  void tiles(int64_t from, int64_t to, int64_t p, const uint8_t* data, int64_t begin, int64_t end,
             int most_rows, const uint8_t* ahead, Kernels&& kernel, int panels = 1,
             size_t unpacked_bytes = 0) const {
    QuantTileArgs args{};
    args.panel = data;
    args.groups = end - begin;
    args.group_stride = x.group_stride();
    args.ldo = ldo;
    args.valid =
        static_cast<int>(std::min<int64_t>(panels * kPanelRows, matrix.n - p * kPanelRows));
    args.panel_bytes = unpacked_bytes > 0 ? unpacked_bytes : matrix.panel_bytes;
    args.panels = panels;
    args.resume = begin > 0;
    args.ahead = ahead;
    args.ahead_bytes = matrix.panel_bytes / static_cast<size_t>(x.groups);
    args.ahead_panel_bytes = matrix.panel_bytes;
    const bool ends = p + panels >= panel_end && next.data != nullptr;
    args.next = ends ? next.data : panel(p + panels);
    args.next_bytes = ends ? next.panel_bytes : matrix.panel_bytes;
    // One division for all of it: a tile's product is short.
    const int64_t tile = from / x.tile;
    int64_t first = tile * x.tile;
    const uint8_t* record = x.record(tile, begin);
    for (; first < to; first += x.tile, record += x.tile_stride()) {
      const int64_t end_of_tile = std::min(first + x.tile, to);
      for_row_pieces(std::max(first, from), end_of_tile, most_rows, [&](int64_t row, int rows) {
        args.q = record + (row - first) * kGroup;
        args.terms = record + x.tile * kGroup +
                     static_cast<size_t>(row - first) * sizeof(QuantizedRows::Terms);
        args.out = out + row * ldo + p * kPanelRows;
        kernel(rows)(args);
      });
    }
  }
};

// Quantizes groups, four at a time where that is best.
class GroupQuantizer {
 public:
  explicit GroupQuantizer(const KernelTable& table) : table_(table) {}
  GroupQuantizer(const GroupQuantizer&) = delete;
  GroupQuantizer& operator=(const GroupQuantizer&) = delete;
  ~GroupQuantizer() {
    if (count_ == 0) return;
    std::fill(waiting_ + count_, waiting_ + 4, waiting_[count_ - 1]);
    table_.quantize_four(waiting_);
  }

  void add(const GroupPlace& group) {
    if (table_.quantize_four == nullptr) {
      return table_.quantize_group(group.x, group.q, group.terms);
    }
    waiting_[count_] = group;
    if (++count_ == 4) table_.quantize_four(waiting_), count_ = 0;
  }

 private:
  const KernelTable& table_;
  GroupPlace waiting_[4];
  int count_ = 0;
};

// quantize_groups, to bf16.
void round_groups(const float* x, const QuantizedRows& out, int64_t row, int64_t group_begin,
                  int64_t group_end) {
  const KernelTable& table = *bf16_kernels();
  const int64_t whole = std::min(group_end, out.k / kGroup);
  if (group_begin < whole) {
    table.round_run(x + group_begin * kGroup, whole - group_begin, out.elements(row, group_begin),
                    out.group_stride());
  }
  for (int64_t g = std::max(group_begin, whole); g < group_end; ++g) {
    float padded[kGroup] = {};
    std::copy(x + g * kGroup, x + out.k, padded);
    table.round_run(padded, 1, out.elements(row, g), 0);
  }
}

}  // namespace

void linear_q8(const PanelMatrix& matrix, const QuantizedRows& x, int64_t row_begin,
               int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo,
               const PanelStream& next, const AddedRows& residual) {
  const ProductArgs args{matrix,    x,   row_begin, row_end, panel_begin,
                         panel_end, out, ldo,       next,    residual};
  if (x.bf16) return bf16_kernels()->product(args);
  const KernelTable& table = kernels();
  const QuantProduct product{args, table};
  const auto kernels = table.expanded == nullptr
                           ? ExpandedKernels{}
                           : table.expanded(matrix.source, row_end - row_begin);
  if (kernels.expand != nullptr && row_end - row_begin >= kernels.from_rows) {
    product.expanded(kernels);
  } else if (product.is_stream()) {
    product.streamed();
  } else {
    product.stored();
  }
}

bool pairs_products(const QuantizedRows& x) {
  return x.bf16 && x.rows > x.tile;
}

void linear_pair(const PanelMatrix& first, const PanelMatrix& second, const QuantizedRows& x,
                 int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                 TakePair take, void* context) {
  bf16_kernels()->product_pair(
      {first, second, x, row_begin, row_end, panel_begin, panel_end, take, context});
}

void quantize_block(const float* x, QuantizedRows& out, int64_t row, int64_t rows, int64_t column) {
  uint8_t* to = out.elements(row, column / kGroup) + column % kGroup * 2;
  bf16_kernels()->round_block(x, rows, to);
}

void linear_f32(const PanelMatrix& matrix, const float* x, int64_t ldx, int64_t row_begin,
                int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo) {
  const KernelTable& table = kernels();
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    FloatTileArgs args{};
    args.panel = matrix.data + static_cast<size_t>(p) * matrix.panel_bytes;
    args.k = matrix.k;
    args.ldx = ldx;
    args.ldo = ldo;
    args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.n - p * kPanelRows));
    for_row_pieces(row_begin, row_end, table.float_rows, [&](int64_t row, int rows) {
      args.x = x + row * ldx;
      args.out = out + row * ldo + p * kPanelRows;
      table.floats(matrix.layout, rows)(args);
    });
  }
}

void quantize_rows(const float* x, int64_t ldx, QuantizedRows& out, int64_t row, int64_t rows,
                   int64_t group_begin, int64_t group_end) {
  if (group_begin >= group_end) return;
  if (out.bf16) {
    for (int64_t r = 0; r < rows; ++r) {
      round_groups(x + r * ldx, out, row + r, group_begin, group_end);
    }
    return;
  }
  GroupQuantizer quantizer(kernels());
  const size_t stride = out.group_stride();
  const int64_t whole = std::min(group_end, out.k / kGroup);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * ldx;
    auto* q = reinterpret_cast<uint8_t*>(out.q(row + r, group_begin));
    auto* terms = reinterpret_cast<uint8_t*>(out.terms(row + r, group_begin));
    for (int64_t g = group_begin; g < whole; ++g, q += stride, terms += stride) {
      quantizer.add({from + g * kGroup, reinterpret_cast<int8_t*>(q),
                     reinterpret_cast<QuantizedRows::Terms*>(terms)});
    }
    if (whole == group_end) continue;
    float padded[kGroup] = {};
    std::copy(from + whole * kGroup, from + out.k, padded);
    kernels().quantize_group(padded, out.q(row + r, whole), out.terms(row + r, whole));
  }
}

void quantize_groups(const float* x, QuantizedRows& out, int64_t row, int64_t group_begin,
                     int64_t group_end) {
  quantize_rows(x, 0, out, row, 1, group_begin, group_end);
}

void QuantizedRows::copy_row(int64_t to, const QuantizedRows& from, int64_t row) const {
  for (int64_t g = 0; g < groups; ++g) {
    std::memcpy(elements(to, g), from.elements(row, g), element_bytes());
    if (!bf16) *terms(to, g) = *from.terms(row, g);
  }
}

void QuantizedRows::read_row(int64_t row, float* x) const {
  for (int64_t g = 0; g < groups; ++g) {
    float group[kGroup];
    if (bf16) {
      read_bf16_group(elements(row, g), group);
    } else {
      const int8_t* of = q(row, g);
      const float scale = terms(row, g)->scale;
      for (int i = 0; i < kGroup; ++i) group[i] = scale * static_cast<float>(of[i]);
    }
    std::copy_n(group, std::min<int64_t>(kGroup, k - g * kGroup), x + g * kGroup);
  }
}

}  // namespace octavo
