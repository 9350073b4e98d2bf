#include "kernels/kernel_table.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)

#include "kernels/linear_q8_vnni256.h"

namespace octavo {

const KernelTable& avx512vl_kernels() {
  static const KernelTable table = vnni256_table();
  return table;
}

}  // namespace octavo

#endif
