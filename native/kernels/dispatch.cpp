// Chooses the instruction set once, at the first product.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels/kernel_table.h"

namespace octavo {
namespace {

struct InstructionSet {
  const char* name;
  bool (*supported)();
  const KernelTable& (*table)();
  bool bf16 = false;  // beside another one, unless OCTAVO_ISA asks for it alone
};

bool always() {
  return true;
}

#if defined(__x86_64__)

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

// Tiles of bytes: leaf 7, bits 24 (tiles) and 25 (of bytes) of edx. The kernel lends the state of
// tiles to a process that asks for it, if it can save them.
bool has_amx() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx >> 24 & 3) == 3 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Tiles of bf16, and float16: leaf 7, bits 22 and 23 of edx.
bool has_amxbf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_amxbf16_kernels() && has_amx() &&
         __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 3) == 3;
}

// AVX-VNNI: leaf 7, subleaf 1, bit 4 of eax. The compilers in use do not all know its name.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

// vpdpbusd on 256 bits, in either encoding.
bool has_vnni256() {
  return has_avxvnni() || has_avx512();
}

const KernelTable& vnni256_kernels() {
  return has_avxvnni() ? avxvnni_kernels() : avx512vl_kernels();
}

// Best first.
constexpr InstructionSet kSets[] = {{"amxbf16", has_amxbf16, amxbf16_kernels, true},
                                    {"amx", has_amx, amx_kernels},
                                    {"avx512", has_avx512, avx512_kernels},
                                    {"avxvnni", has_vnni256, vnni256_kernels},
                                    {"avx2", has_avx2, avx2_kernels},
                                    {"scalar", always, scalar_kernels}};

#elif defined(__aarch64__) && defined(__linux__)

bool has_dot_product() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

constexpr InstructionSet kSets[] = {{"neon", has_dot_product, neon_kernels},
                                    {"scalar", always, scalar_kernels}};

#else

constexpr InstructionSet kSets[] = {{"scalar", always, scalar_kernels}};

#endif

// The place of `name` in kSets, which is one past the end if it is not there.
size_t place_of(const std::string& name) {
  const auto* at = std::find_if(std::begin(kSets), std::end(kSets),
                                [&](const InstructionSet& set) { return name == set.name; });
  return static_cast<size_t>(at - std::begin(kSets));
}

// The sets one can ask for here, as a sentence has them.
std::string names() {
  std::string all = kSets[0].name;
  for (size_t i = 1; i < std::size(kSets); ++i) {
    all += i + 1 == std::size(kSets) ? " or " : ", ";
    all += kSets[i].name;
  }
  return all;
}

std::string wanted() {
  const char* isa = std::getenv("OCTAVO_ISA");
  return isa == nullptr ? "" : isa;
}

const KernelTable& choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  const std::string isa = wanted();
  const size_t first = isa.empty() ? 0 : place_of(isa);
  for (size_t i = first; i < std::size(kSets); ++i) {
    if (kSets[i].bf16 && isa.empty()) continue;
    if (kSets[i].supported()) return kSets[i].table();
  }
  throw std::invalid_argument("OCTAVO_ISA: got '" + isa + "'; expected " + names() +
                              "; unset it to use the best");
}

}  // namespace

#if defined(__x86_64__)
bool has_amx_bf16() {  // leaf 7, bit 22 of edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1) != 0;
}
#endif

const KernelTable& kernels() {
  static const KernelTable& table = choose();
  return table;
}

const KernelTable* bf16_kernels() {
  static const KernelTable* table = [] {
    const std::string isa = wanted();
    const auto* set = std::find_if(std::begin(kSets), std::end(kSets), [&](const auto& s) {
      return s.bf16 && (isa.empty() || isa == s.name) && s.supported();
    });
    return set == std::end(kSets) ? nullptr : &set->table();
  }();
  return table;
}

bool has_bf16_products() {
  return bf16_kernels() != nullptr;
}

Products usual_products() {
  return kernels().product == nullptr ? Products::kInt8 : Products::kBf16;
}

const char* active_isa() {
  return kernels().isa;
}

}  // namespace octavo
