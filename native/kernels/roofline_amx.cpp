// The machine's own limits: full tiles, multiplied in place.
#include "kernels/kernels_amx.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)

#include "kernels/amx_tiles.h"

namespace octavo {
namespace {

constexpr int64_t kProducts = 8;  // of a turn of a loop
constexpr int64_t kOperations = kProducts * 2 * kAmxRows * (kAmxBytes / 4) * kAmxBytes;  // of bytes

constexpr TileShapes full_shapes() {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  return shapes;
}

void open_zeros() {
  static constexpr TileShapes kShapes = full_shapes();
  open_tiles(kShapes);
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<4>();
}

}  // namespace

int64_t int8_loop_amx(int64_t loops, int) {
  open_zeros();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kProducts; j += 2) {
      tile_add_bytes<0, 2, 4>();
      tile_add_bytes<1, 2, 4>();
    }
  }
  close_tiles();
  return loops * kOperations;
}

int64_t bf16_loop_amx(int64_t loops) {
  open_zeros();
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kProducts; j += 2) {
      tile_add_bf16<0, 2, 4>();
      tile_add_bf16<1, 2, 4>();
    }
  }
  close_tiles();
  return loops * kOperations / 2;
}

}  // namespace octavo

#endif
