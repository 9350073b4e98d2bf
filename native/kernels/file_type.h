// Every type of the file whose numbers come in blocks, by name.
#pragma once

#include "kernels/table_block.h"

namespace octavo {

// Calls f.template operator()<T>() for the type `file` of blocks that panels of codes or integers
// hold; false for any other.
template <typename F>
bool with_block_type(SourceType file, F&& f) {
  switch (file) {
    case SourceType::kQ4_0:
      f.template operator()<SourceType::kQ4_0>();
      return true;
    case SourceType::kQ4_1:
      f.template operator()<SourceType::kQ4_1>();
      return true;
    case SourceType::kQ5_0:
      f.template operator()<SourceType::kQ5_0>();
      return true;
    case SourceType::kQ5_1:
      f.template operator()<SourceType::kQ5_1>();
      return true;
    case SourceType::kQ8_0:
      f.template operator()<SourceType::kQ8_0>();
      return true;
    case SourceType::kQ2_K:
      f.template operator()<SourceType::kQ2_K>();
      return true;
    case SourceType::kQ3_K:
      f.template operator()<SourceType::kQ3_K>();
      return true;
    case SourceType::kQ4_K:
      f.template operator()<SourceType::kQ4_K>();
      return true;
    case SourceType::kQ5_K:
      f.template operator()<SourceType::kQ5_K>();
      return true;
    case SourceType::kQ6_K:
      f.template operator()<SourceType::kQ6_K>();
      return true;
    case SourceType::kIQ4_NL:
      f.template operator()<SourceType::kIQ4_NL>();
      return true;
    case SourceType::kNF4:
      f.template operator()<SourceType::kNF4>();
      return true;
    case SourceType::kFP4:
      f.template operator()<SourceType::kFP4>();
      return true;
    case SourceType::kIQ4_XS:
      f.template operator()<SourceType::kIQ4_XS>();
      return true;
    case SourceType::kTQ1_0:
      f.template operator()<SourceType::kTQ1_0>();
      return true;
    case SourceType::kTQ2_0:
      f.template operator()<SourceType::kTQ2_0>();
      return true;
    case SourceType::kMXFP4:
      f.template operator()<SourceType::kMXFP4>();
      return true;
    case SourceType::kQ1_0:
      f.template operator()<SourceType::kQ1_0>();
      return true;
    case SourceType::kE4M3:
      f.template operator()<SourceType::kE4M3>();
      return true;
    case SourceType::kNVFP4:
      f.template operator()<SourceType::kNVFP4>();
      return true;
    case SourceType::kQ4_Z:
      f.template operator()<SourceType::kQ4_Z>();
      return true;
    case SourceType::kQ4_Z128:
      f.template operator()<SourceType::kQ4_Z128>();
      return true;
    case SourceType::kQ8_Z128:
      f.template operator()<SourceType::kQ8_Z128>();
      return true;
    case SourceType::kQ8_Z:
      f.template operator()<SourceType::kQ8_Z>();
      return true;
    case SourceType::kE4M3_32:
      f.template operator()<SourceType::kE4M3_32>();
      return true;
    case SourceType::kNVFP4_D:
      f.template operator()<SourceType::kNVFP4_D>();
      return true;
    default:
      return with_table_type(file, f);
  }
}

// Bytes of a number of a type without blocks; 0 for any other type.
constexpr int plain_bytes(SourceType file) {
  switch (file) {
    case SourceType::kI8:
      return 1;
    case SourceType::kF16:
    case SourceType::kBF16:
    case SourceType::kI16:
      return 2;
    case SourceType::kF32:
    case SourceType::kI32:
      return 4;
    case SourceType::kF64:
    case SourceType::kI64:
      return 8;
    default:
      return 0;
  }
}

// Columns and bytes of a block, both 0 for an unknown type.
struct BlockShape {
  int columns;
  int bytes;
};

inline BlockShape block_shape(SourceType file) {
  if (const int bytes = plain_bytes(file); bytes > 0) return {1, bytes};
  if (file == SourceType::kQ8_K) return {256, 292};
  if (file == SourceType::kE5M2) return {32, 36};
  BlockShape shape{0, 0};
  with_block_type(file, [&]<SourceType T>() { shape = {Block<T>::kColumns, Block<T>::kBytes}; });
  return shape;
}

}  // namespace octavo
