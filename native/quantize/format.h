// Writing numbers as blocks of GGUF: first the scales of a block are found, then each number's
// code.
//
// The two are kept apart so that whoever chooses codes otherwise than by rounding (GPTQ) can do so
// on the grid that the scales span: number = scale * level(code) + offset, one scale and offset for
// each `sub` numbers of a block. A format's level is the code itself, less `zero`, unless it has a
// table.
#pragma once

#include <cstdint>

namespace octavo::quantize {

inline constexpr int kMaxBlock = 256;
inline constexpr int kMaxSubs = 16;
// Not GGML's: Q4_0 whose scales are the same in four blocks each, so that they are groups of 128.
inline constexpr uint32_t kWideQ4_0 = 1002;

struct Format {
  uint32_t type;         // GGML's id
  int block;             // numbers of a block
  int bytes;             // bytes of a block
  int sub;               // numbers that share a scale
  int codes;             // codes are 0 .. codes - 1
  float zero;            // level of code q: q - zero
  const float* table;    // or table[q], ascending
  const uint8_t* order;  // with a table: the stored code of table[q]

  // Scales of x[block] with weights w[block] > 0: what one squared error costs. Codes become 0.
  void (*fit)(const float* x, const float* w, uint8_t* block_bytes);
  // scale and offset of each sub-block, exactly as readers compute them.
  void (*grid)(const uint8_t* block_bytes, float* scale, float* offset);
  // Write codes[block] into a block that has its scales.
  void (*put)(const uint8_t* codes, uint8_t* block_bytes);

  int subs() const { return block / sub; }
  float level(int code) const { return table ? table[code] : static_cast<float>(code) - zero; }
};

// The format of a GGML type, or null for one that is not written here.
const Format* find_format(uint32_t type);

// The code whose level is nearest to v; of two, the one nearbyint chooses.
int nearest(const Format& format, float v);

// fit, grid, nearest codes, put. importance: of a column, [block]; null where all are alike.
void quantize_block(const Format& format, const float* x, const float* importance, uint8_t* out);

// Weights for `fit`: importance, or where there is none, what favours large numbers somewhat.
void fit_weights(const Format& format, const float* x, const float* importance, float* w);

}  // namespace octavo::quantize
