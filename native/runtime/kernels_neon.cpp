#if defined(__aarch64__)
#include "runtime/simd_neon.h"
//
#include "runtime/kernels.inl"

namespace octavo {

extern const RuntimeKernels kernels_neon;
const RuntimeKernels kernels_neon = {"neon",       KvType::kF16,   rms_norm, silu_mul, gelu_mul,
                                     gelu_erf_mul, clamped_swiglu, silu,     gelu,     gelu_erf,
                                     tanh_rows,    softcap,        add_rows, mul_rows, scale_rows,
                                     add_scaled,   rope,           kv_write, attend,   attend_chunk,
                                     attend_merge, latent_write};

}  // namespace octavo
#endif
