#if defined(__x86_64__)
#define OCTAVO_KERNELS kernels_avx2
#define OCTAVO_KERNELS_NAME "avx2"
#include "runtime/simd_avx2.h"
//
#include "runtime/kernels.inl"
#endif
