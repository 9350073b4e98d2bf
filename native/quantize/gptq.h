// The inner loop of GPTQ (Frantar et al. 2022): codes of one block of columns, column by column,
// each one's error passed on to the columns that follow.
#pragma once

#include <cstdint>

#include "quantize/format.h"

namespace octavo::quantize {

// One row. x[block]: the numbers; changed. factor[block][block]: the upper Cholesky factor of the
// inverse Hessian for these columns. importance[block]: for the scales; null where alike. error
// [block]: what the columns after the block must take, times rows of the factor. out: the block.
void gptq_block(const Format& format, float* x, const float* factor, const float* importance,
                float* error, uint8_t* out);

}  // namespace octavo::quantize
