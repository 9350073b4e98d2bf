#include "kernels/kernel_table.h"

#if defined(__AVXVNNI__)

#include "kernels/linear_q8_vnni256.h"

namespace octavo {

const KernelTable& avxvnni_kernels() {
  static const KernelTable table = vnni256_table();
  return table;
}

}  // namespace octavo

#endif
