// Products of many rows by e4m3 floats with AMX: 16 rows of activations by one panel, unpacked to
// digits (wide.h). A digit of a group is a tile; the three products of a group, exact in int32,
// pass through memory to be put together and scaled.
#include "kernels/kernel_table.h"

#if defined(__AMX_INT8__)

#include <array>
#include <utility>

#include "kernels/amx_tiles.h"
#include "kernels/kernels_amx.h"
#include "kernels/kernels_avx512.h"
#include "kernels/panel_views_zmm.h"

namespace octavo {
namespace {

using Terms = QuantizedRows::Terms;
constexpr size_t kPlane = 512;
constexpr size_t kBytes = 3 * kPlane + 64;  // of an unpacked group

// Tiles 0 to 2 and 3 to 5 are sums of the three digits of two groups in turn, 6 activations, 7
// weights.
constexpr TileShapes tile_shapes() {
  TileShapes shapes;
  for (int i = 0; i < 6; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  shapes.shape(6, kAmxRows, kGroup);
  shapes.shape(7, kGroup / 4, kAmxBytes);
  return shapes;
}

void open() {
  static constexpr TileShapes kShapes = tile_shapes();
  open_tiles(kShapes);
}

struct alignas(64) Sums {
  int32_t at[3][kAmxRows][kPanelRows];
  OCTAVO_INLINE __m512 row(int t) const {
    const __m512i low = _mm512_load_si512(at[0][t]), high = _mm512_load_si512(at[2][t]);
    const __m512i two = _mm512_add_epi32(_mm512_load_si512(at[1][t]), _mm512_slli_epi32(high, 8));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(two, 8)));
  }
};

// The products of 16 rows of activations and the digits of a group, into tiles 3 i and on.
template <int i>
OCTAVO_INLINE void multiply(const uint8_t* q, const uint8_t* group) {
  constexpr int first = 3 * i;
  tile_load<6>(q, kGroup);
  tile_load<7>(group, 64);
  tile_zero<first>();
  tile_add_unsigned<first, 6, 7>();
  tile_load<7>(group + kPlane, 64);
  tile_zero<first + 1>();
  tile_add_unsigned<first + 1, 6, 7>();
  tile_load<7>(group + 2 * kPlane, 64);
  tile_zero<first + 2>();
  tile_add_bytes<first + 2, 6, 7>();
}

template <int i>
OCTAVO_INLINE void take(Sums& sums) {
  tile_store<3 * i>(sums.at[0], kAmxBytes);
  tile_store<3 * i + 1>(sums.at[1], kAmxBytes);
  tile_store<3 * i + 2>(sums.at[2], kAmxBytes);
}

template <int T>
OCTAVO_INLINE void add(const Sums& sums, const uint8_t* group, const uint8_t* terms_at,
                       __m512 (&c)[T]) {
  const auto* terms = reinterpret_cast<const Terms*>(terms_at);
  const __m512 scale = load_floats(group + 3 * kPlane);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(terms[t].scale));
    c[t] = _mm512_fmadd_ps(sums.row(t), both, c[t]);
  }
}

OCTAVO_INLINE const uint8_t* ask_ahead(const uint8_t* at, size_t bytes) {
  if (at == nullptr) return at;
  for (size_t b = 0; b < bytes; b += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
  }
  return at + bytes;
}

// T rows. The float steps of a group run beside the products of the next.
template <int T>
void tile(const QuantTileArgs& a) {
  const __mmask16 mask =
      a.valid >= kPanelRows ? 0xffff : static_cast<__mmask16>((1 << a.valid) - 1);
  const __mmask16 old = a.resume ? mask : static_cast<__mmask16>(0);
  __m512 c[T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) c[t] = _mm512_maskz_loadu_ps(old, a.out + t * a.ldo);
  Sums sums[2];
  const uint8_t *q = a.q, *terms = a.terms, *group = a.panel, *ahead = a.ahead;
  const size_t stride = a.group_stride;
  multiply<0>(q, group);
  int64_t g = 0;
  for (; g + 2 <= a.groups; g += 2) {
    multiply<1>(q + stride, group + kBytes);
    take<0>(sums[0]);
    ahead = ask_ahead(ahead, 2 * a.ahead_bytes);
    add<T>(sums[0], group, terms, c);
    if (g + 2 < a.groups) multiply<0>(q + 2 * stride, group + 2 * kBytes);
    take<1>(sums[1]);
    add<T>(sums[1], group + kBytes, terms + stride, c);
    q += 2 * stride, terms += 2 * stride, group += 2 * kBytes;
  }
  if (g < a.groups) {
    take<0>(sums[0]);
    add<T>(sums[0], group, terms, c);
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(a.out + t * a.ldo, mask, c[t]);
}

template <int... T>
const QuantTileKernel* tiles(std::integer_sequence<int, T...>) {
  static constexpr std::array<QuantTileKernel, sizeof...(T)> kTiles{tile<T + 1>...};
  return kTiles.data();
}

}  // namespace

ExpandedKernels wide_expanded_amx(SourceType source) {
  if (!__builtin_cpu_supports("avx512vbmi")) return wide_expanded_avx512(source);
  ExpandedKernels kernels{};
  kernels.expand = e4m3_expand_signed(source);
  kernels.tiles = tiles(std::make_integer_sequence<int, kAmxRows>{});
  kernels.from_rows = 9;
  kernels.most_rows = kAmxRows;
  kernels.groups = kWideGroups;
  kernels.many_rows = 64;
  kernels.open = open;
  kernels.close = close_tiles;
  return kernels;
}

}  // namespace octavo

#endif
