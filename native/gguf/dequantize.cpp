#include "gguf/dequantize.h"

#include "kernels/dequantize_row.h"

namespace octavo::gguf {

bool can_dequantize(uint32_t type) {
  return block_columns(static_cast<SourceType>(type)) > 0;
}

void dequantize(uint32_t type, const uint8_t* blocks, uint64_t num_blocks, float* out) {
  const auto source = static_cast<SourceType>(type);
  dequantize_row(source, blocks, static_cast<int64_t>(num_blocks) * block_columns(source), out);
}

}  // namespace octavo::gguf
