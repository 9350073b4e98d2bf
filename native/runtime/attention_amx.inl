// Attention with AMX: 16 rows of queries by 16 keys, or of probabilities by 16 columns of values,
// 32 numbers deep, in one instruction. The cache is kept as attention_bf16.inl has it: a tile of
// keys or of values lies there as it is multiplied. Included by kernels_amx.cpp after
// attention_bf16.inl.
//
// tdpbf16ps sums the even and the odd numbers of a tile's depth by themselves and adds both to what
// was there. Its bits differ from those of vdpbf16ps, but not with the number of rows: decode and
// prefill both come here.

namespace octavo {
namespace {

constexpr int kTilePairs = kAmxRows;         // of numbers in a tile's depth
constexpr int kTileColumns = kAmxBytes / 4;  // floats of a row of sums

// Asks memory for `lines` lines.
__attribute__((always_inline)) inline void ask_for(const uint8_t* at, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + i * 64);
}

// out[16][16 * 4] = p[16][keys in span] V[keys][16 * 4 columns from c on]
struct ValueTiles {
  int64_t d;
  const ChunkBlocks& blocks;
  Range span;

  template <int N>
  void run(const float* p, int64_t c, float* out, int64_t ldo) const {
    OCTAVO_TILE_ZERO(0);
    OCTAVO_TILE_ZERO(1);
    if constexpr (N == 4) {
      OCTAVO_TILE_ZERO(2);
      OCTAVO_TILE_ZERO(3);
    }
    for (int b = span.begin / kBlockTokens; b * kBlockTokens < span.end; ++b) {
      const uint8_t* ahead = c == 0 ? blocks.ahead[blocks.count + b] : nullptr;
      const int left = span.end - b * kBlockTokens;
      OCTAVO_TILE_LOAD(4, p + b * kTilePairs, kScoresStride * 4);
      if (left >= kBlockTokens) {
        add<N>(values(b) + c, d, ahead);
      } else {
        // The block may never have been written after these keys.
        alignas(64) uint32_t seen[kTilePairs * kTileColumns * N];
        copy_seen(values(b) + c, left, kTileColumns * N, seen);
        add<N>(seen, kTileColumns * N, ahead);
      }
    }
    OCTAVO_TILE_STORE(0, out, ldo * 4);
    OCTAVO_TILE_STORE(1, out + kTileColumns, ldo * 4);
    if constexpr (N == 4) {
      OCTAVO_TILE_STORE(2, out + 2 * kTileColumns, ldo * 4);
      OCTAVO_TILE_STORE(3, out + 3 * kTileColumns, ldo * 4);
    }
  }

 private:
  const uint32_t* values(int b) const {
    return reinterpret_cast<const uint32_t*>(blocks.at[b]) + d / 2 * kBlockTokens;
  }

  // Tiles 0 to N - 1 += tile 4 by the values at v, whose rows are ld pairs apart.
  template <int N>
  inline __attribute__((always_inline)) void add(const uint32_t* v, int64_t ld,
                                                 const uint8_t* ahead) const {
    const int64_t lines = d / N;  // a block's values are d lines
    ask_for(ahead, ahead == nullptr ? 0 : lines);
    OCTAVO_TILE_LOAD(5, v, ld * 4);
    OCTAVO_TILE_ADD_BF16(0, 4, 5);
    ask_for(ahead + lines * 64, ahead == nullptr ? 0 : lines);
    OCTAVO_TILE_LOAD(6, v + kTileColumns, ld * 4);
    OCTAVO_TILE_ADD_BF16(1, 4, 6);
    if constexpr (N == 4) {
      ask_for(ahead + 2 * lines * 64, ahead == nullptr ? 0 : lines);
      OCTAVO_TILE_LOAD(5, v + 2 * kTileColumns, ld * 4);
      OCTAVO_TILE_ADD_BF16(2, 4, 5);
      ask_for(ahead + 3 * lines * 64, ahead == nullptr ? 0 : lines);
      OCTAVO_TILE_LOAD(6, v + 3 * kTileColumns, ld * 4);
      OCTAVO_TILE_ADD_BF16(3, 4, 6);
    }
  }

  // The values of the first `keys` keys, and zeros for the others.
  void copy_seen(const uint32_t* v, int keys, int columns, uint32_t* out) const {
    for (int k = 0; k < kTilePairs; ++k, out += columns) {
      const int of_pair = std::clamp(keys - 2 * k, 0, 2);
      const uint32_t mask = of_pair == 2 ? ~0u : of_pair == 1 ? 0xffffu : 0u;
      for (int i = 0; i < columns; ++i) out[i] = mask == 0 ? 0 : v[k * d + i] & mask;
    }
  }
};

constexpr TileShapes attention_shapes() {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) shapes.shape(i, kAmxRows, kAmxBytes);
  return shapes;
}
constexpr TileShapes kAttentionShapes = attention_shapes();

struct TileMath : PairedMath {
  struct Ready {
    Ready() { open_tiles(kAttentionShapes); }
    ~Ready() { close_tiles(); }
    Ready(const Ready&) = delete;
    Ready& operator=(const Ready&) = delete;
  };
  static constexpr int kRows = kAmxRows;
  // A core's few line buffers are taken by what comes from memory. Had that gone to the
  // second-level cache, what is read from there would wait for them too; in the first-level cache
  // nothing does.
  static constexpr bool kNear = true;

  static void scores(int, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    OCTAVO_TILE_ZERO(0);
    OCTAVO_TILE_ZERO(1);
    constexpr int64_t kStride = kBlockTokens * 4;
    for (int64_t i = 0; i < d; i += 2 * kTilePairs, block += kTilePairs * kStride) {
      OCTAVO_TILE_LOAD(4, q + i / 2, d * 4);
      if (ahead != nullptr) ask_for(ahead + i * 64, kTilePairs);
      OCTAVO_TILE_LOAD(5, block, kStride);
      OCTAVO_TILE_ADD_BF16(0, 4, 5);
      if (ahead != nullptr) ask_for(ahead + i * 64 + kTilePairs * 64, kTilePairs);
      OCTAVO_TILE_LOAD(6, block + kAmxBytes, kStride);
      OCTAVO_TILE_ADD_BF16(1, 4, 6);
    }
    OCTAVO_TILE_STORE(0, out, kScoresStride * 4);
    OCTAVO_TILE_STORE(1, out + kTileColumns, kScoresStride * 4);
  }

  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    const ValueTiles tiles{d, blocks, span};
    int64_t c = 0;
    for (; c + 4 * kTileColumns <= d; c += 4 * kTileColumns) some<4>(tiles, rows, p, c, out, d);
    if (c < d) some<2>(tiles, rows, p, c, out, d);
  }

 private:
  // N tiles of columns from c on; a tile has 16 rows, `out` may have fewer.
  template <int N>
  static void some(const ValueTiles& tiles, int rows, const float* p, int64_t c, float* out,
                   int64_t d) {
    if (rows == kAmxRows) return tiles.run<N>(p, c, out + c, d);
    constexpr int kColumns = N * kTileColumns;
    alignas(64) float sums[kAmxRows * kColumns];
    tiles.run<N>(p, c, sums, kColumns);
    for (int r = 0; r < rows; ++r) {
      std::copy(sums + r * kColumns, sums + (r + 1) * kColumns, out + r * d + c);
    }
  }
};

// The numbers of a key beyond head_dim are multiplied too: they are zeros.
void kv_write_tiled(const float* k, const float* v, uint8_t* block, int64_t head_dim, int at,
                    KvType type) {
  kv_write_paired(k, v, block, head_dim, at, type);
  if (type != KvType::kBF16) return;
  uint32_t* kt = reinterpret_cast<uint32_t*>(block);
  for (int64_t i = (head_dim + 1) / 2; i < padded_head_dim(head_dim) / 2; ++i) {
    kt[i * kBlockTokens + at] = 0;
  }
}

}  // namespace
}  // namespace octavo
