#include "sampling/philox.h"

#include "sampling/sampler.h"

namespace octavo {

double philox_uniform(uint64_t seed, uint32_t counter) {
  auto words = philox4x32({counter, 0, 0, 0},
                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  uint64_t bits = (static_cast<uint64_t>(words[1]) << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace octavo
