#if defined(__x86_64__)
#include "runtime/simd_avx512.h"
//
#include "runtime/kernels.inl"
//
#include "runtime/attention_bf16.inl"

namespace octavo {

extern const RuntimeKernels kernels_avx512;
const RuntimeKernels kernels_avx512 = {
    "avx512",       KvType::kF16, rms_norm,     silu_mul,    gelu_mul,  gelu_erf_mul,
    clamped_swiglu, silu,         gelu,         gelu_erf,    tanh_rows, softcap,
    add_rows,       mul_rows,     scale_rows,   add_scaled,  rope,      kv_write,
    attend,         attend_chunk, attend_merge, latent_write};

// Where the processor multiplies bf16 pairs, a bf16 cache is kept in pairs and is the default.
extern const RuntimeKernels kernels_avx512_bf16;
const RuntimeKernels kernels_avx512_bf16 = {"avx512",
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
                                            attend_by<PairedMath>,
                                            attend_chunk_by<PairedMath>,
                                            attend_merge,
                                            latent_write};

}  // namespace octavo
#endif
