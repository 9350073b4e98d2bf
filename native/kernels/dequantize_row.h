// One row of the file as float32.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace octavo {

// out[k]. `row` holds source_row_bytes(source, k) bytes.
void dequantize_row(SourceType source, const uint8_t* row, int64_t k, float* out);

}  // namespace octavo
