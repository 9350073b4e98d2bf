#include "runtime/kernels.h"

#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/panel.h"

namespace octavo {

extern const RuntimeKernels kernels_scalar;
#if defined(__x86_64__)
extern const RuntimeKernels kernels_avx2;
extern const RuntimeKernels kernels_avx512;
extern const RuntimeKernels kernels_avx512_bf16;
extern const RuntimeKernels kernels_amx;
#elif defined(__aarch64__)
extern const RuntimeKernels kernels_neon;
#endif

const RuntimeKernels& runtime_kernels() {
#if defined(__x86_64__)
  const char* isa = active_isa();
  const bool tiles = std::strncmp(isa, "amx", 3) == 0;  // amx, amxbf16
  if (tiles && __builtin_cpu_supports("avx512bf16") && has_amx_bf16()) return kernels_amx;
  if (tiles || std::strcmp(isa, "avx512") == 0) {
    return __builtin_cpu_supports("avx512bf16") ? kernels_avx512_bf16 : kernels_avx512;
  }
  // 256-bit VNNI serves the products alone.
  if (std::strcmp(isa, "avx2") == 0 || std::strcmp(isa, "avxvnni") == 0) return kernels_avx2;
#elif defined(__aarch64__)
  if (std::strcmp(active_isa(), "neon") == 0) return kernels_neon;
#endif
  return kernels_scalar;
}

}  // namespace octavo
