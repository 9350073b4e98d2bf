// One row of the file as float32.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// Columns of a block of `file`: 1 for numbers without blocks, 32 to 256; 0 if the type is unknown.
int block_columns(SourceType file);

// out[k]. `row` holds source_row_bytes(file, k) bytes.
void dequantize_row(SourceType file, const uint8_t* row, int64_t k, float* out);

}  // namespace octavo
