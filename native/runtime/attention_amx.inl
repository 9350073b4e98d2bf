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

// Up to three tiles of rows meet a tile of keys or of values together: sums in tiles 0 to 2, rows
// in 3 to 5; 6 and 7 are keys or values in turn. One tile of rows alone is tile 3, with sums in 0,
// 1, 2 and 4.
constexpr int kMostTiles = kTileRows / kAmxRows;

// The last tile of rows has as many as are left of `rows`: nothing is computed for others, nor
// stored.
inline TileShapes attention_shapes(int rows) {
  TileShapes shapes;
  for (int i = 0; i < kMostTiles; ++i) {
    const int of_tile = std::clamp(rows - i * kAmxRows, 1, kAmxRows);
    shapes.shape(i, of_tile, kAmxBytes);
    shapes.shape(kMostTiles + i, of_tile, kAmxBytes);
  }
  for (int i : {1, 2, 4}) {
    if (rows <= kAmxRows) shapes.shape(i, rows, kAmxBytes);
  }
  shapes.shape(6, kAmxRows, kAmxBytes);
  shapes.shape(7, kAmxRows, kAmxBytes);
  return shapes;
}

// Sums of T tiles of rows by 16 columns.
template <int T>
struct TileSums {
  static inline __attribute__((always_inline)) void clear() {
    tile_zero<0>();
    if constexpr (T > 1) tile_zero<1>();
    if constexpr (T > 2) tile_zero<2>();
  }
  // += the rows at x, `stride` bytes apart, by tile `by`.
  template <int by>
  static inline __attribute__((always_inline)) void add(const float* x, int64_t stride) {
    const char* at = reinterpret_cast<const char*>(x);
    const int64_t tile = kAmxRows * stride;
    add_tile<0, by>(at, stride);
    if constexpr (T > 1) add_tile<1, by>(at + tile, stride);
    if constexpr (T > 2) add_tile<2, by>(at + 2 * tile, stride);
  }
  static inline __attribute__((always_inline)) void store(float* out, int64_t ld) {
    tile_store<0>(out, ld * 4);
    if constexpr (T > 1) tile_store<1>(out + kAmxRows * ld, ld * 4);
    if constexpr (T > 2) tile_store<2>(out + 2 * kAmxRows * ld, ld * 4);
  }

 private:
  template <int i, int by>
  static inline __attribute__((always_inline)) void add_tile(const char* x, int64_t stride) {
    tile_load<kMostTiles + i>(x, stride);
    tile_add_bf16<i, kMostTiles + i, by>();
  }
};

// The values of a chunk's blocks.
class BlockValues {
 public:
  BlockValues(int64_t d, const ChunkBlocks& blocks, Range span)
      : d_(d), blocks_(blocks), span_(span) {}

  int begin() const { return span_.begin / kBlockTokens; }
  int end() const { return (span_.end + kBlockTokens - 1) / kBlockTokens; }
  // Of block b, from column c on; `columns` of them are going to be read, and may be copied to
  // `copy`: the block may never have been written behind the keys that are seen.
  const uint32_t* at(int b, int64_t c, int columns, uint32_t* copy) const {
    const uint32_t* v =
        reinterpret_cast<const uint32_t*>(blocks_.at[b]) + d_ / 2 * kBlockTokens + c;
    const int left = span_.end - b * kBlockTokens;
    if (left >= kBlockTokens) return v;
    for (int k = 0; k < kTilePairs; ++k) {
      const int of_pair = std::clamp(left - 2 * k, 0, 2);
      const uint32_t mask = of_pair == 2 ? ~0u : of_pair == 1 ? 0xffffu : 0u;
      for (int i = 0; i < columns; ++i) copy[k * d_ + i] = mask == 0 ? 0 : v[k * d_ + i] & mask;
    }
    return copy;
  }
  const uint8_t* ahead(int b) const { return blocks_.ahead[blocks_.count + b]; }

 private:
  int64_t d_;
  const ChunkBlocks& blocks_;
  Range span_;
};

struct TileMath : PairedMath {
  struct Ready {
    explicit Ready(int rows) { open_tiles(attention_shapes(rows)); }
    ~Ready() { close_tiles(); }
    Ready(const Ready&) = delete;
    Ready& operator=(const Ready&) = delete;
  };
  static constexpr int kRows = kTileRows;
  static constexpr bool kApart = true;
  // A core's few line buffers are taken by what comes from memory. Had that gone to the
  // second-level cache, what is read from there would wait for them too; in the first-level cache
  // nothing does.
  static constexpr bool kNear = true;

  static void scores(int rows, const Query* q, int64_t d, int64_t, const uint8_t* block, float* out,
                     const uint8_t* ahead) {
    if (rows <= kAmxRows) return few_scores(q, d, block, out, ahead);
    if (rows <= 2 * kAmxRows) return many_scores<2>(q, d, block, out);
    many_scores<3>(q, d, block, out);
  }

  static void values(int rows, const float* p, int64_t d, const ChunkBlocks& blocks, Range span,
                     float* out) {
    const BlockValues v{d, blocks, span};
    if (rows <= kAmxRows) return few_values(p, d, v, out);
    if (rows <= 2 * kAmxRows) return many_values<2>(p, d, v, out);
    many_values<3>(p, d, v, out);
  }

 private:
  static constexpr int64_t kKeyStride = kBlockTokens * 4;
  static constexpr int64_t kKeyTile = kTilePairs * kKeyStride;
  static constexpr int64_t kProbabilityStride = kNarrowStride * 4;

  static void few_scores(const Query* q, int64_t d, const uint8_t* block, float* out,
                         const uint8_t* ahead) {
    tile_zero<0>();
    tile_zero<1>();
    for (int64_t i = 0; i < d; i += 2 * kTilePairs, block += kKeyTile) {
      tile_load<3>(q + i / 2, d * 4);
      if (ahead != nullptr) ask_for(ahead + i * 64, kTilePairs);
      tile_load<6>(block, kKeyStride);
      tile_add_bf16<0, 3, 6>();
      if (ahead != nullptr) ask_for(ahead + i * 64 + kTilePairs * 64, kTilePairs);
      tile_load<7>(block + kAmxBytes, kKeyStride);
      tile_add_bf16<1, 3, 7>();
    }
    tile_store<0>(out, kScoresStride * 4);
    tile_store<1>(out + kTileColumns, kScoresStride * 4);
  }

  // Keys come from the second-level cache, and pass by the first, which is for what is made of
  // them.
  template <int T>
  static void many_scores(const Query* q, int64_t d, const uint8_t* block, float* out) {
    for (int c = 0; c < kBlockTokens; c += kTileColumns) {
      const uint8_t* keys = block + c * 4;
      const Query* rows = q;
      TileSums<T>::clear();
      int64_t i = 0;
      for (; i + 4 * kTilePairs <= d; i += 4 * kTilePairs, keys += 2 * kKeyTile) {
        tile_load_passing<6>(keys, kKeyStride);
        TileSums<T>::template add<6>(rows + i / 2, d * 4);
        tile_load_passing<7>(keys + kKeyTile, kKeyStride);
        TileSums<T>::template add<7>(rows + i / 2 + kTilePairs, d * 4);
      }
      if (i < d) {
        tile_load_passing<6>(keys, kKeyStride);
        TileSums<T>::template add<6>(rows + i / 2, d * 4);
      }
      TileSums<T>::store(out + c, kScoresStride);
    }
  }

  // Block by block, so that values are read in the order in which they lie. Sums of up to 64
  // columns stay in tiles 0, 1, 2 and 4; those of more wait in `out`, two tiles at a time.
  static void few_values(const float* p, int64_t d, const BlockValues& v, float* out) {
    const bool stay = d == 4 * kTileColumns;
    uint32_t copy[kTilePairs * kMaxHeadDim];
    for (int b = v.begin(); b < v.end(); ++b) {
      const uint32_t* values = v.at(b, 0, static_cast<int>(d), copy);
      const uint8_t* ahead = v.ahead(b);
      const bool first = b == v.begin(), last = b + 1 == v.end();
      tile_load<3>(p + b * kTilePairs, kProbabilityStride);
      for (int64_t c = 0; c < d; c += 4 * kTileColumns) {
        two_columns<0, 1>(values + c, d, out + c, first, stay && !first, stay && !last, ahead);
        if (c + 2 * kTileColumns == d) break;
        if (ahead != nullptr) ahead += 2 * kTilePairs * 64;
        constexpr int kNext = 2 * kTileColumns;
        two_columns<2, 4>(values + c + kNext, d, out + c + kNext, first, stay && !first,
                          stay && !last, ahead);
        if (ahead != nullptr) ahead += 2 * kTilePairs * 64;
      }
    }
  }

  // Tile 3 by two tiles of values, into tiles `left` and `right`: their sums are taken from `out`
  // unless this is the first block or they are there already, and put back unless they are to stay.
  template <int left, int right>
  static inline __attribute__((always_inline)) void two_columns(const uint32_t* v, int64_t d,
                                                                float* out, bool first, bool there,
                                                                bool stay, const uint8_t* ahead) {
    const int64_t stride = d * 4;
    if (first) {
      tile_zero<left>();
      tile_zero<right>();
    } else if (!there) {
      tile_load<left>(out, stride);
      tile_load<right>(out + kTileColumns, stride);
    }
    if (ahead != nullptr) ask_for(ahead, kTilePairs);
    tile_load<6>(v, stride);
    tile_add_bf16<left, 3, 6>();
    if (ahead != nullptr) ask_for(ahead + kTilePairs * 64, kTilePairs);
    tile_load<7>(v + kTileColumns, stride);
    tile_add_bf16<right, 3, 7>();
    if (stay) return;
    tile_store<left>(out, stride);
    tile_store<right>(out + kTileColumns, stride);
  }

  template <int T>
  static void many_values(const float* p, int64_t d, const BlockValues& v, float* out) {
    uint32_t copy[kTilePairs * kMaxHeadDim];
    for (int64_t c = 0; c < d; c += kTileColumns) {
      TileSums<T>::clear();
      int b = v.begin();
      for (; b + 2 <= v.end(); b += 2) {
        tile_load_passing<6>(v.at(b, c, kTileColumns, copy), d * 4);
        TileSums<T>::template add<6>(p + b * kTilePairs, kProbabilityStride);
        tile_load_passing<7>(v.at(b + 1, c, kTileColumns, copy), d * 4);
        TileSums<T>::template add<7>(p + (b + 1) * kTilePairs, kProbabilityStride);
      }
      if (b < v.end()) {
        tile_load_passing<6>(v.at(b, c, kTileColumns, copy), d * 4);
        TileSums<T>::template add<6>(p + b * kTilePairs, kProbabilityStride);
      }
      TileSums<T>::store(out + c, d);
    }
  }
};

}  // namespace
}  // namespace octavo
