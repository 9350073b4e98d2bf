// Between the files of the AMX set, which has the rest from the AVX-512 set.
#pragma once

#include "kernels/kernel_table.h"

namespace octavo {

// For types whose half groups have whole-numbered scales, from `from_rows` rows on; for others
// null.
ExpandedKernels folded_kernels_amx(SourceType source);
ExpandedKernels wide_expanded_amx(SourceType source);
int64_t int8_loop_amx(int64_t loops, int bits);
int64_t bf16_loop_amx(int64_t loops);  // needs amx_bf16

}  // namespace octavo
