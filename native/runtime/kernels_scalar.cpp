#define OCTAVO_KERNELS kernels_scalar
#define OCTAVO_KERNELS_NAME "scalar"
#include "runtime/simd_scalar.h"
//
#include "runtime/kernels.inl"
