// Chooses the instruction set once, at the first product.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

const KernelTable& choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  const char* wanted = std::getenv("OCTAVO_ISA");
  const std::string isa = wanted == nullptr ? "" : wanted;
  if (!isa.empty() && isa != "avx512" && isa != "avx2" && isa != "scalar") {
    throw std::invalid_argument("OCTAVO_ISA: got '" + isa +
                                "'; expected avx512, avx2 or scalar; unset it to use the best");
  }
#if defined(__x86_64__)
  if (has_avx512() && (isa.empty() || isa == "avx512")) return avx512_kernels();
  if (has_avx2() && isa != "scalar") return avx2_kernels();
#endif
  return scalar_kernels();
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& table = choose();
  return table;
}

const char* active_isa() {
  return kernels().isa;
}

}  // namespace octavo
