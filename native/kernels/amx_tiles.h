// AMX tiles: how they are shaped, loaded and stored. For the files of the AMX set.
//
// Assembly and not intrinsics: those of GCC 12 name less memory than they read, so that stores
// before them may be dropped or drift past them.
#pragma once

#include <cstdint>

#define OCTAVO_TILE_LOAD(tile, base, stride)                  \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile             \
               :                                              \
               : "r"(base), "r"(static_cast<int64_t>(stride)) \
               : "memory")
// The same of what will not be read again soon: it takes no place in the first level of cache from
// what will.
#define OCTAVO_TILE_LOAD_PASSING(tile, base, stride)          \
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile           \
               :                                              \
               : "r"(base), "r"(static_cast<int64_t>(stride)) \
               : "memory")
#define OCTAVO_TILE_STORE(tile, base, stride)                 \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)"         \
               :                                              \
               : "r"(base), "r"(static_cast<int64_t>(stride)) \
               : "memory")
#define OCTAVO_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile : : :)
// c += a * b of signed bytes, or of bf16 pairs.
#define OCTAVO_TILE_ADD_BYTES(c, a, b) \
  asm volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)
#define OCTAVO_TILE_ADD_BF16(c, a, b) \
  asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)

namespace octavo {

constexpr int kAmxRows = 16;   // of a tile, at most
constexpr int kAmxBytes = 64;  // of its rows, at most

// The shapes of all eight tiles, as the processor reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr void shape(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// A thread shapes its tiles before it uses them (about 200 cycles) and gives them back afterwards,
// so that its state is small again.
inline void open_tiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
inline void close_tiles() {
  asm volatile("tilerelease");
}

}  // namespace octavo
