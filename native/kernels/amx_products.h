// What the tile products of the AMX set share: sums on their way through memory, and the loop over
// rows that a kernel's `Sum` fills. For the linear_*_amx.cpp files.
#pragma once

#include <array>
#include <utility>

#include "kernels/amx_tiles.h"
#include "kernels/panel_views_zmm.h"

namespace octavo {
namespace {

constexpr int kTileRows = kAmxRows;

// Where the sums of a row pass through memory.
struct alignas(64) Sums {
  int32_t at[kTileRows][kPanelRows];
  OCTAVO_INLINE __m512i integers(int t) const { return _mm512_load_si512(at[t]); }
  OCTAVO_INLINE __m512 converted(int t) const { return _mm512_cvtepi32_ps(integers(t)); }
  // The same where multipliers are short: integers below 2^22 become floats by two additions, which
  // leave the multipliers alone.
  OCTAVO_INLINE __m512 row(int t) const {
    const __m512 big = _mm512_set1_ps(0x1.8p23f);
    const __m512i moved = _mm512_add_epi32(integers(t), _mm512_castps_si512(big));
    return _mm512_sub_ps(_mm512_castsi512_ps(moved), big);
  }
};

// Asks memory for the lines of a group that is unpacked later.
OCTAVO_INLINE const uint8_t* ask_ahead(const uint8_t* at, size_t bytes) {
  if (at == nullptr) return at;
  for (size_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
  }
  return at + bytes;
}

// All unpacked panels, one after the other: the first tile product of the next runs beside the last
// float steps of the one before.
template <class Sum, int T>
void run_tile(const QuantTileArgs& a) {
  QuantTileArgs one = a;
  Sum::begin(a.q, a.panel);
  for (int p = 0; p < a.panels; ++p) {
    const uint8_t* next = p + 1 < a.panels ? one.panel + a.panel_bytes : nullptr;
    const int valid = a.valid - p * kPanelRows;
    const __mmask16 mask = valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << valid) - 1);
    const __mmask16 old = a.resume ? mask : static_cast<__mmask16>(0);
    __m512 c[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) c[t] = _mm512_maskz_loadu_ps(old, one.out + t * a.ldo);
    Sum::run(one, next, c);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(one.out + t * a.ldo, mask, c[t]);
    one.panel = next;
    one.out += kPanelRows;
    if (one.ahead != nullptr) one.ahead += a.ahead_panel_bytes;
  }
}

// The kernels of 1, 2, ... rows.
template <template <int> class Sum, int... T>
const QuantTileKernel* tiles(std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{run_tile<Sum<T + 1>, T + 1>...};
  return kTiles.data();
}

}  // namespace
}  // namespace octavo
