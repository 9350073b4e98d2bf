// One row of the file as float32.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// Columns of a block of `source`: 1 for floats, 32 or 256; 0 if the type is not one that packs.
int block_columns(SourceType source);

// out[k]. `row` holds source_row_bytes(source, k) bytes.
void dequantize_row(SourceType source, const uint8_t* row, int64_t k, float* out);

}  // namespace octavo
