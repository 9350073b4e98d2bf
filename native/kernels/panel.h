// Packed weights ("panels") and the products on them. The contract between kernels and executor.
//
// A panel is 16 output rows by K. Quantized panels order elements [k/4][16 rows][4], 64 bytes a
// line, with the scales (and mins) of each group in the stream right after the group's lines.
// Weights are the unsigned operand, activations the signed one; every offset, zero point or min is
// a rank-1 term: min[row, group] * sum(activation[group]).
//
// Arithmetic promise: out[m][n] depends on row m of the activations and row n of the weights alone,
// with one fixed order of float operations, whatever M, the panel range or the thread. All kernel
// variants of one instruction set give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

constexpr int kPanelRows = 16;
constexpr int kGroup = 32;  // activation elements that share a scale

// GGUF's type ids. Most have panels of their own kind; the others are kept as another type's, which
// `panel_type` tells.
enum class SourceType : int32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  // No file's, but what quantized safetensors become:
  kTable = 1000,  // 4-bit codes into 16 numbers that the panel carries, for kIQ1 to kIQ3
  // Rows of the others are blocks of 32 columns:
  kE4M3 = 1010,     // 8-bit floats: a float32 scale, the codes; 128 columns share a scale
  kNVFP4_D = 1011,  // as kNVFP4: a float32 scale, an e4m3 scale for each 16, pairs of codes; 256
                    // columns share the first scale
  // w = d * (q - zero): float16 d, then the zero point, a byte or (128 columns share both) int16,
  // of 8 bits less 128; then q, of 4 bits the first and the last 16 of a block in a byte.
  kQ4_Z = 1012,
  kQ4_Z128 = 1013,
  kQ8_Z128 = 1014,
  // Codes of bitsandbytes: float16 d, then codes as in kIQ4_NL.
  kNF4 = 1015,
  kFP4 = 1016,
  kQ8_Z = 1017,     // as kQ8_Z128, but 32 columns share d and the zero point
  kE4M3_32 = 1018,  // as kE4M3, but 32 columns share a scale
  kE5M2 = 1019,     // 8-bit floats that are float16's first bytes; blocks as those of kE4M3_32
};

// How the packed elements look; plan_panels chooses. Weights stay at about their size in the file.
enum class PanelLayout : int32_t { kF32, kF16, kBF16, kE5M2, kU2, kU3, kU4, kU5, kU6, kU8 };

// Whether products take float activations.
inline bool is_float(PanelLayout layout) {
  return layout == PanelLayout::kF32 || layout == PanelLayout::kF16 ||
         layout == PanelLayout::kBF16 || layout == PanelLayout::kE5M2;
}

// What quantized weights are multiplied in.
enum class Products : int32_t { kInt8, kBf16 };

struct PanelMatrix {
  PanelLayout layout = PanelLayout::kF32;
  SourceType source = SourceType::kF32;  // whose panels these are
  SourceType file = SourceType::kF32;    // how the rows lie in the file
  int64_t n = 0;                         // rows wanted (the last panel is padded with zero rows)
  int64_t k = 0;                         // columns
  int64_t num_panels = 0;                // ceil(n / 16)
  size_t panel_bytes = 0;                // bytes of one panel in the stream, a multiple of 64
  bool for_bf16 = false;                 // panels end in what products in bf16 need besides
  const uint8_t* data = nullptr;         // num_panels * panel_bytes, 64-byte aligned; not owned

  size_t size_bytes() const { return static_cast<size_t>(num_panels) * panel_bytes; }
};

// Whose panels hold a type's weights: its own, or those of the smallest type that holds the same
// numbers exactly. Throws std::invalid_argument for a type that is not known.
SourceType panel_type(SourceType file);

// Shape and size of the packed form, data left null. as_float expands everything to kF32.
// for_bf16: so that it can be multiplied in bf16 as well, where this machine has such products.
// Throws std::invalid_argument if the type or K cannot be packed.
PanelMatrix plan_panels(SourceType file, int64_t n, int64_t k, bool as_float, bool for_bf16);

// Packs panels [begin, end) from `rows` (the tensor's raw bytes as in the file) into dst (the start
// of the whole packed matrix). Thread-safe for disjoint ranges.
void pack_panels(const PanelMatrix& matrix, const uint8_t* rows, int64_t begin, int64_t end,
                 uint8_t* dst);

// Bytes of one row in the file.
size_t source_row_bytes(SourceType file, int64_t k);

// Reads row `row` back as float32 (the embedding look-up on a tied table).
void unpack_row(const PanelMatrix& matrix, int64_t row, float* out);

// Activations, in tiles of up to 16 rows that one pass over the weights serves; K is padded to a
// multiple of 32 with zeros. Products in int8 have them as int8 with one scale per group of 32: a
// tile holds, group after group, the 32 bytes of each of its rows, then the Terms of each of its
// rows, and a product reads it front to back through two pointers. Products in bf16 have the 64
// bytes of each row, group after group, and no terms (bf16_rows.h).
struct QuantizedRows {
  struct Terms {
    float scale;            // x ~ scale * q
    float sum;              // scale * (sum of q over the group)
    int32_t neg_sum;        // -(sum of q over the group); kept in another way by some kernels
    int32_t neg_sum_first;  // -(sum of q over its first 16); likewise
  };
  static constexpr int kMaxTile = 32;

  int64_t k = 0;
  int64_t rows = 0;
  int64_t groups = 0;  // ceil(k / 32)
  int tile = 0;        // rows of a tile, <= kMaxTile; the last tile may be part filled
  bool bf16 = false;
  uint8_t* data = nullptr;  // not owned

  static size_t bytes(int64_t rows, int64_t k, Products products);
  // What `in` uses for just these rows. Kernels may read kBeyond bytes more.
  static size_t exact_bytes(int64_t rows, int64_t k, Products products);
  // The most that exact_bytes of parts of these rows add up to.
  static size_t most_bytes(int64_t rows, int64_t k, Products products);
  static constexpr size_t kBeyond = kMaxTile * kGroup * 2;
  // Lays the rows into `memory` (64-byte aligned, bytes(...) long). `rows` is best the number of
  // rows about to be multiplied: the tile size is chosen so that the tiles come out even, and as
  // the instruction set in use likes them.
  static QuantizedRows in(void* memory, int64_t rows, int64_t k, Products products);

  // Bytes of a row's group: its elements, and those with its terms.
  size_t element_bytes() const { return bf16 ? 2 * kGroup : kGroup; }
  size_t row_bytes() const { return element_bytes() + (bf16 ? 0 : sizeof(Terms)); }
  size_t group_stride() const { return static_cast<size_t>(tile) * row_bytes(); }
  size_t tile_stride() const { return static_cast<size_t>(groups) * group_stride(); }
  uint8_t* elements(int64_t row, int64_t group) const {
    return record(row / tile, group) + static_cast<size_t>(row % tile) * element_bytes();
  }
  // The elements, and the terms, of rows that are not bf16.
  int8_t* q(int64_t row, int64_t group) const {
    return reinterpret_cast<int8_t*>(elements(row, group));
  }
  Terms* terms(int64_t row, int64_t group) const {
    return reinterpret_cast<Terms*>(record(row / tile, group) + tile * kGroup) + row % tile;
  }
  // A group of all rows of a tile: their elements, then their terms.
  uint8_t* record(int64_t of_tile, int64_t group) const {
    return data + static_cast<size_t>(of_tile) * tile_stride() +
           static_cast<size_t>(group) * group_stride();
  }
  // Row `to` becomes row `row` of `from`, of the same K.
  void copy_row(int64_t to, const QuantizedRows& from, int64_t row) const;
  // Row `row` as the products see it: x[k].
  void read_row(int64_t row, float* x) const;
};

// Quantizes x[groups begin..end of one row]; x points at the row's first element. A group that
// holds a NaN or an infinity gets a NaN scale, so the products that read it are NaN.
void quantize_groups(const float* x, QuantizedRows& out, int64_t row, int64_t group_begin,
                     int64_t group_end);

// The same groups of `rows` rows; of row i, x + i * ldx points at the first element.
void quantize_rows(const float* x, int64_t ldx, QuantizedRows& out, int64_t row, int64_t rows,
                   int64_t group_begin, int64_t group_end);

// Where panels of some size begin; null: nowhere. What a thread will read after a product: memory
// is asked for its beginning before the product ends.
struct PanelStream {
  const uint8_t* data = nullptr;
  size_t panel_bytes = 0;
};

// Rows that are added to a product's: data[m * ld + n]; null: none.
struct AddedRows {
  const float* data = nullptr;
  int64_t ld = 0;
};

// out[m * ldo + n] = dot(activation row m, weight row n) for m in [0, rows), n in the rows of
// panels [panel_begin, panel_end) (never past matrix.n). Overwrites. matrix must be quantized, and
// for_bf16 if x is bf16, and matrix.k == x.k. Threads that share a product take disjoint panel
// ranges. next: a hint. residual: only where x is bf16.
void linear_q8(const PanelMatrix& matrix, const QuantizedRows& x, int64_t row_begin,
               int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo,
               const PanelStream& next = {}, const AddedRows& residual = {});

// Two products of the same rows, panel by panel, without results in memory: of each panel, some
// rows at a time, take(context, first row, number of rows, panel, first, second), first and second
// [rows x 16], which may be written. Only where pairs_products(x).
using TakePair = void (*)(void* context, int64_t row, int64_t rows, int64_t panel, float* first,
                          float* second);
void linear_pair(const PanelMatrix& first, const PanelMatrix& second, const QuantizedRows& x,
                 int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                 TakePair take, void* context);
bool pairs_products(const QuantizedRows& x);

// 16 columns from `column` on, a multiple of 16, of `rows` rows of one tile; x: [rows x 16]. Only
// where `out` is bf16.
void quantize_block(const float* x, QuantizedRows& out, int64_t row, int64_t rows, int64_t column);

// The same for the float panels (kF32, kF16, kBF16, kE5M2) with float activations x[m * ldx + k].
void linear_f32(const PanelMatrix& matrix, const float* x, int64_t ldx, int64_t row_begin,
                int64_t row_end, int64_t panel_begin, int64_t panel_end, float* out, int64_t ldo);

// The instruction set in use: "amx", "avx512", "avxvnni", "avx2", "neon" or "scalar". OCTAVO_ISA
// lowers it (for tests), or makes it "amxbf16", which multiplies in bf16 alone.
const char* active_isa();

// Whether this machine has products in bf16, and what there is unless bf16 is asked for.
bool has_bf16_products();
Products usual_products();

}  // namespace octavo
