// Expands stored blocks to float32. Plain code that defines what the stored numbers mean; the
// kernels that compute on packed weights are elsewhere.
#pragma once

#include <cstdint>

namespace octavo::gguf {

// True if `type` (a GGML type id) can be expanded.
bool can_dequantize(uint32_t type);

// Writes num_blocks * (elements of a block) floats. Each element is computed with the format's own
// operations in its own order, each rounded to float32.
void dequantize(uint32_t type, const uint8_t* blocks, uint64_t num_blocks, float* out);

}  // namespace octavo::gguf
