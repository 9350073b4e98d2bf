// AMX tiles: how they are shaped, loaded and stored. For the files of the AMX set.
//
// Assembly and not intrinsics: those of GCC 12 name less memory than they read, so that stores
// before them may be dropped or drift past them.
#pragma once

#include <cstdint>

namespace octavo {

template <int tile>
inline __attribute__((always_inline)) void tile_load(const void* base, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(tile) : "memory");
}
// The same of what will not be read again soon: it takes no place in the first level of cache from
// what will.
template <int tile>
inline __attribute__((always_inline)) void tile_load_passing(const void* base, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline __attribute__((always_inline)) void tile_store(void* base, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(base), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline __attribute__((always_inline)) void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
// c += a * b of signed bytes, of signed by unsigned ones, or of bf16 pairs.
template <int c, int a, int b>
inline __attribute__((always_inline)) void tile_add_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}
template <int c, int a, int b>
inline __attribute__((always_inline)) void tile_add_unsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}
template <int c, int a, int b>
inline __attribute__((always_inline)) void tile_add_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

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
