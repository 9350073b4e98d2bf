// Compares the NEON kernels with the scalar ones. tests/backend/test_arm.py builds it for aarch64
// and runs it, under qemu where the machine is another. Without arguments it runs all checks; with
// the argument "isa" it prints which kernels the processor and OCTAVO_ISA get.
#include <cstdio>
#include <exception>
#include <string>

#include "kernels/panel.h"
#include "runtime/kernels.h"
#include "tests/arm_checks.h"

namespace {

int run(bool only_name) {
  using namespace octavo;
  if (only_name) {
    std::printf("%s %s\n", active_isa(), runtime_kernels().name);
    return 0;
  }
  if (std::string(active_isa()) != "neon") {
    std::printf("this processor has no dot product instructions\n");
    return 1;
  }
  check_products();
  check_runtime();
  std::printf("%d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 && std::string(argv[1]) == "isa");
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
