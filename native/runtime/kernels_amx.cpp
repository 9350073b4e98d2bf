#if defined(__x86_64__)
#include "kernels/amx_tiles.h"
#include "runtime/simd_avx512.h"
//
#include "runtime/kernels.inl"
//
#include "runtime/attention_bf16.inl"
//
#include "runtime/attention_amx.inl"

namespace octavo {

// As AVX-512 but for attention; only where the processor multiplies bf16 pairs in vectors too.
extern const RuntimeKernels kernels_amx;
const RuntimeKernels kernels_amx = {"amx",
                                    KvType::kBF16,
                                    rms_norm,
                                    silu_mul,
                                    gelu_mul,
                                    gelu_erf_mul,
                                    clamped_swiglu,
                                    silu,
                                    gelu,
                                    gelu_erf,
                                    tanh_rows,
                                    softcap,
                                    add_rows,
                                    mul_rows,
                                    scale_rows,
                                    add_scaled,
                                    rope,
                                    kv_write_paired,
                                    attend_by<TileMath>,
                                    attend_chunk_by<TileMath>,
                                    attend_merge,
                                    latent_write};

}  // namespace octavo
#endif
