// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a random
// function of (key, counter) without state, so a draw can be repeated from its seed and position.
#pragma once

#include <array>
#include <cstdint>

namespace octavo {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = kMultiplier0 * counter[0];
    uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The uniform number in [0, 1) that (seed, counter) stands for, with 53 bits.
inline double philox_uniform(uint64_t seed, uint32_t counter) {
  auto words = philox4x32({counter, 0, 0, 0},
                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  uint64_t bits = (static_cast<uint64_t>(words[1]) << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace octavo
