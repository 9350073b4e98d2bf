// Between the files of the AMX set, which is the AVX-512 set but for products of many rows.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernel_table.h"

namespace octavo {

const KernelTable& amx_kernels();

}  // namespace octavo
