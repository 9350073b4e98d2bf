// Quantized weights as other tools pack them, as blocks that the panels are packed from. Weights
// are made while a model loads, so this must keep up with the reading of the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// w[n][k] = (code - zero[n][k / group]) * scale[n][k / group]; codes of `bits` (2, 3, 4 or 8) in
// words. 32 columns of a row are a stream of `bits` words, the lowest bits first: word i of block b
// of row n is words[n * row_stride + b * block_stride + i * word_stride]. interleaved (AWQ): a word
// has 4-bit codes of 8 rows in one column, of rows 0 4 1 5 2 6 3 7 from the lowest bits; column k
// of rows 8 c .. 8 c + 7 is words[k * word_stride + c].
struct PackedIntegers {
  const uint32_t* words = nullptr;
  size_t num_words = 0;
  int bits = 0;
  int64_t n = 0;
  int64_t k = 0;  // a multiple of 32, as is group
  int64_t group = 0;
  int64_t row_stride = 0;
  int64_t block_stride = 0;
  int64_t word_stride = 0;
  bool interleaved = false;
  const int32_t* order = nullptr;  // [k], null: as they are; column i of the blocks is this column
  const int16_t* zeros = nullptr;  // [n][k / group]
  const uint16_t* scales = nullptr;  // float16, likewise
};

// Writes n * k / 32 blocks of Q4_0, Q5_0, Q8_0 or, with their zero points, Q4_Z, Q4_Z128, Q8_Z,
// Q8_Z128. False if a number is outside of what the type holds. Throws std::invalid_argument if the
// words do not reach or the type is another.
bool integer_blocks(const PackedIntegers& source, SourceType type, uint8_t* out);

// w[n][k] = table[code] * scale[n / row_block][k / group] in float16, rounded to nearest.
struct ScaledCodes {
  const uint8_t* codes = nullptr;  // a byte each; or two in a byte, the high four bits first
  bool nibbles = false;
  const float* table = nullptr;  // 256 numbers, or 16
  int64_t n = 0;
  int64_t k = 0;
  const float* scales = nullptr;  // [ceil(n / row_block)][ceil(k / group)]
  int64_t row_block = 0;
  int64_t group = 0;
};

// False if a number is beyond float16's range.
bool scaled_halves(const ScaledCodes& source, uint16_t* out);

}  // namespace octavo
