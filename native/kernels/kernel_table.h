// What one instruction set offers. linear.cpp walks rows and panels; a tile kernel multiplies a few
// rows of activations by one panel.
//
// The order of float operations per output element, the same in every kernel of every set:
//   quantized: for each group in K order
//     c = fma(float(integer dot product), weight scale * activation scale, c)
//     c = fma(weight min, activation sum, c)                 (formats with mins only)
//     (Numbers of more than a byte, wide.h: the dot product is exact in an int32, and so rounded
//     once, to float.)
//   kHalves, the halves of a group having whole-numbered scales: for each group of a block of 256
//     in K order
//     s = fma(float(sum of each half's scale * integer dot product), activation scale, s)
//   which is exact up to the fma, being below 2^24 (with scales that are floats, it is the product
//   of the first half, and the second's added by an fma); then c = fma(s, the block's scale, c), s
//   = 0. With whole-numbered mins (Q2_K) besides
//     t = fma(float(sum of each half's min * -(sum of its activations)), activation scale, t)
//   and at the end c = fma(t, the block's scale of mins, c), t = 0
//   float: four sums over k % 4, c[j] = fma(w, x, c[j]) in K order; then (c0 + c1) + (c2 + c3)
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/panel.h"

namespace octavo {

struct QuantTileArgs {
  const uint8_t* panel;  // the first panel
  size_t panel_bytes;    // from one panel to the next
  int panels;            // how many; only kernels that say so take several
  int64_t groups;
  const uint8_t* q;      // 32 bytes a row, group 0 of the first row
  const uint8_t* terms;  // QuantizedRows::Terms a row, group 0 of the first row
  size_t group_stride;   // bytes from one group to the next, of both
  float* out;            // element (first row, first weight row)
  int64_t ldo;
  int valid;    // weight rows wanted, <= 16 a panel
  bool resume;  // go on from the sums in `out` (of the columns before these) instead of zero
  // Unpacked panels: what to ask memory for meanwhile, so many bytes a group; null: nothing.
  const uint8_t* ahead;
  size_t ahead_bytes;
  size_t ahead_panel_bytes;  // from what is asked for beside one panel to that beside the next
  // Several panels: the panels that come after them, to be asked for near their end, and the size
  // of one of those.
  const uint8_t* next;
  size_t next_bytes;
};

struct FloatTileArgs {
  const uint8_t* panel;
  int64_t k;
  const float* x;  // first row, column 0
  int64_t ldx;
  float* out;
  int64_t ldo;
  int valid;
};

using QuantTileKernel = void (*)(const QuantTileArgs&);
using FloatTileKernel = void (*)(const FloatTileArgs&);

// A kernel that takes so many adjacent panels at once (`valid` up to 16 each): as many streams of
// memory.
struct StreamKernel {
  QuantTileKernel run;
  int panels;
};

// With many rows of activations it pays to unpack a piece of a panel once and multiply it by all.
// kExpandedGroupBytes: the most bytes of an unpacked group.
constexpr size_t kExpandedGroupBytes = 784;
// Wide formats unpack to more, fewer groups at once: kWideGroups of at most kWideGroupBytes.
constexpr int64_t kWideGroups = 16;
constexpr size_t kWideGroupBytes = 2112;
// Unpacks groups [begin, end) of a panel, begin a multiple of 8.
using ExpandFunction = void (*)(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* out);
struct ExpandedKernels {
  ExpandFunction expand;
  const QuantTileKernel* tiles;  // of rows 1, 2, ...: they take what `expand` wrote as their panel
  int64_t from_rows;             // with fewer rows it does not pay
  int most_rows;                 // of a tile
  int64_t groups = 64;           // of a panel that are unpacked at once: a multiple of 8, <= 64
  int64_t many_rows = 0;         // with fewer, a panel is unpacked at a time; else four
  bool all_panels = false;       // `tiles` take all that are unpacked in one call
  // Called by a thread before and after it runs tiles; may be null.
  void (*open)() = nullptr;
  void (*close)() = nullptr;
};

// Rows [row_begin, row_end) by panels [panel_begin, panel_end): the arguments of linear_q8.
struct ProductArgs {
  const PanelMatrix& matrix;
  const QuantizedRows& x;
  int64_t row_begin;
  int64_t row_end;
  int64_t panel_begin;
  int64_t panel_end;
  float* out;
  int64_t ldo;
  const PanelStream& next;
  const AddedRows& residual;
};

// Tiles of rows [row_begin, row_end) by panels [panel_begin, panel_end) of two matrices of one
// shape: the arguments of linear_pair.
struct PairArgs {
  const PanelMatrix& first;
  const PanelMatrix& second;
  const QuantizedRows& x;
  int64_t row_begin;
  int64_t row_end;
  int64_t panel_begin;
  int64_t panel_end;
  TakePair take;
  void* context;
};

// A group of 32 to quantize, and where to.
struct GroupPlace {
  const float* x;
  int8_t* q;
  QuantizedRows::Terms* terms;
};

struct KernelTable {
  const char* isa;
  int quant_rows;      // most activation rows of a quantized tile
  int tile_rows = 12;  // rows of a tile of activations, at most QuantizedRows::kMaxTile
  int float_rows;      // most activation rows of a float tile
  QuantTileKernel (*quant)(SourceType source, int rows);
  // Of rows up to stream_rows by as many of `panels` panels as are best read at once; null: that is
  // one.
  StreamKernel (*quant_stream)(SourceType source, int rows, int64_t panels) = nullptr;
  int stream_rows = 0;
  FloatTileKernel (*floats)(PanelLayout layout, int rows);
  // The same sums from unpacked groups, as is best for so many rows; null, or a null `expand`: it
  // does not pay.
  ExpandedKernels (*expanded)(SourceType source, int64_t rows) = nullptr;
  // Quantizes one group of 32.
  void (*quantize_group)(const float* x, int8_t* q, QuantizedRows::Terms* terms);
  // Four at once, any of which may be the same; null: one at a time is best.
  void (*quantize_four)(const GroupPlace (&groups)[4]) = nullptr;
  // Sets that multiply in bf16: whole products (null: the tiles above), two at once, a row's groups
  // of 32 as they read them (`stride` bytes apart), 16 columns of a tile's rows likewise, what a
  // panel has behind its groups (PanelMatrix::for_bf16), and the writing of that.
  void (*product)(const ProductArgs&) = nullptr;
  void (*product_pair)(const PairArgs&) = nullptr;
  void (*round_run)(const float* x, int64_t groups, uint8_t* out, size_t stride) = nullptr;
  void (*round_block)(const float* x, int64_t rows, uint8_t* out) = nullptr;
  size_t trailer_bytes = 0;
  void (*finish_panel)(const PanelMatrix& matrix, uint8_t* panel) = nullptr;
  // For benchmarks: runs about `loops` times some of the set's best multiply-adds of int8 by
  // weights of `bits` bits (4, 5, 6, 8) in registers, exact to 32 bits, and returns the number of
  // multiplications and additions done.
  int64_t (*int8_loop)(int64_t loops, int bits);
  // For benchmarks: reads every byte (a multiple of 512) and returns something that depends on
  // them.
  int64_t (*read_loop)(const uint8_t* data, size_t bytes);
  // The same, asking memory less far ahead, which is faster on some processors; null: not written.
  int64_t (*read_near_loop)(const uint8_t* data, size_t bytes) = nullptr;
  // For benchmarks: float32 multiply-adds in registers, as int8_loop; null: not written.
  int64_t (*f32_loop)(int64_t loops) = nullptr;
  // For benchmarks: bf16 dot products in registers; null: the set or this machine has none.
  int64_t (*bf16_loop)(int64_t loops) = nullptr;
};

// 127 / amax, or 0 where the group becomes zeros: all tiny, or not finite.
inline float inverse_scale(float amax) {
  return amax > 1e-30f && amax <= 3.402823466e38f ? 127.0f / amax : 0.0f;
}

// The terms of a group whose quantized elements sum to `sum`, the first 16 to `first`.
inline void set_terms(float amax, int first, int sum, QuantizedRows::Terms* terms) {
  terms->scale =
      amax <= 3.402823466e38f ? amax * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  terms->sum = terms->scale * static_cast<float>(sum);
  terms->neg_sum = -sum;
  terms->neg_sum_first = -first;
}

const KernelTable& scalar_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avxvnni_kernels();   // vpdpbusd on 256 bits, of AVX-VNNI
const KernelTable& avx512vl_kernels();  // the same, of AVX-512 VNNI and VL
const KernelTable& avx512_kernels();
const KernelTable& amx_kernels();
const KernelTable& amxbf16_kernels();  // has no table where the compiler cannot make one
bool has_amxbf16_kernels();
// Whether tiles multiply bf16 pairs too.
bool has_amx_bf16();
const KernelTable& neon_kernels();

// The table in use: the best this machine has, lowered by OCTAVO_ISA.
const KernelTable& kernels();
// That of products in bf16; null: this machine has none, or OCTAVO_ISA names a set without them.
const KernelTable* bf16_kernels();

}  // namespace octavo
