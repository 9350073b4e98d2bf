#if defined(__x86_64__)
#define OCTAVO_KERNELS kernels_avx512
#define OCTAVO_KERNELS_NAME "avx512"
#include "runtime/simd_avx512.h"
//
#include "runtime/kernels.inl"
#endif
