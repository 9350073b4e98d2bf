// Fuzzes the GGUF reader: whatever the bytes are, read_header throws FormatError or gives a header
// whose every string and tensor can be touched. Meant for AddressSanitizer and UBSan.
//
// With Clang, libFuzzer drives it:
//   clang++ -std=c++20 -g -O1 -Inative -fsanitize=fuzzer,address,undefined
//     native/fuzz/gguf_fuzz.cpp native/gguf/reader.cpp native/gguf/dequantize.cpp
//     native/kernels/dequantize_row.cpp native/kernels/grids.cpp -o gguf_fuzz
//   ./gguf_fuzz CORPUS_FOLDER
// Without it, `make fuzz` builds the driver at the end of this file, which mutates seed files.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "gguf/dequantize.h"
#include "gguf/reader.h"

namespace {

using octavo::gguf::BlockSizes;

// Every type that the reader knows: elements and bytes of a block.
const BlockSizes kBlockSizes = {
    {0, {1, 4}},      {1, {1, 2}},      {2, {32, 18}},    {3, {32, 20}},    {6, {32, 22}},
    {7, {32, 24}},    {8, {32, 34}},    {9, {32, 40}},    {10, {256, 84}},  {11, {256, 110}},
    {12, {256, 144}}, {13, {256, 176}}, {14, {256, 210}}, {15, {256, 292}}, {16, {256, 66}},
    {17, {256, 74}},  {18, {256, 98}},  {19, {256, 50}},  {20, {32, 18}},   {21, {256, 110}},
    {22, {256, 82}},  {23, {256, 136}}, {24, {1, 1}},     {25, {1, 2}},     {26, {1, 4}},
    {27, {1, 8}},     {28, {1, 8}},     {29, {256, 56}},  {30, {1, 2}},     {34, {256, 54}},
    {35, {256, 66}},  {39, {32, 17}},   {40, {64, 36}},   {41, {128, 18}}};

// Keeps the compiler from dropping reads whose result nobody wants.
volatile uint64_t sink;

uint64_t sum(const uint8_t* data, uint64_t count) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) total += data[i];
  return total;
}

void touch_value(const octavo::gguf::KeyValue& entry) {
  const size_t size = octavo::gguf::fixed_size(entry.type);
  if (size != 0) {
    sink = sink + sum(entry.payload, entry.count * size);
    return;
  }
  const uint8_t* at = entry.payload;
  for (uint64_t i = 0; i < entry.count; ++i) {
    const auto text = octavo::gguf::next_string(at);
    sink = sink + sum(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
}

void touch_tensor(std::span<const uint8_t> file, const octavo::gguf::TensorInfo& tensor) {
  if (tensor.begin > file.size() || tensor.size_bytes > file.size() - tensor.begin) std::abort();
  const auto& block = kBlockSizes.at(tensor.type);
  const uint64_t blocks = tensor.size_bytes / block.bytes;
  sink = sink + sum(file.data() + tensor.begin, tensor.size_bytes);
  if (!octavo::gguf::can_dequantize(tensor.type)) return;
  std::vector<float> out(blocks * block.elems);
  octavo::gguf::dequantize(tensor.type, file.data() + tensor.begin, blocks, out.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  try {
    const auto header = octavo::gguf::read_header(file, kBlockSizes);
    for (const auto& entry : header.metadata) touch_value(entry);
    for (const auto& tensor : header.tensors) touch_tensor(file, tensor);
  } catch (const octavo::gguf::FormatError&) {
    return -1;  // refused: not worth a place in the corpus
  }
  return 0;
}

#ifdef OCTAVO_FUZZ_DRIVER
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

namespace {

using Bytes = std::vector<uint8_t>;

uint64_t edge_value(std::mt19937_64& rng) {
  constexpr uint64_t kEdges[] = {0, 1, 2, 9, 31, 32, 255, 1u << 31, ~0u, 1ull << 32, ~0ull >> 1};
  const uint64_t edge = kEdges[rng() % std::size(kEdges)];
  return rng() % 4 == 0 ? ~edge : rng() % 4 == 0 ? rng() : edge;
}

void mutate(Bytes& data, std::mt19937_64& rng) {
  if (data.empty()) return;
  const size_t at = rng() % data.size();
  switch (rng() % 5) {
    case 0:
      data[at] ^= static_cast<uint8_t>(1u << rng() % 8);
      break;
    case 1:
      data[at] = static_cast<uint8_t>(rng());
      break;
    case 2: {  // an edge value of 4 or 8 bytes
      const uint64_t value = edge_value(rng);
      const size_t width = std::min<size_t>(rng() % 2 ? 4 : 8, data.size() - at);
      std::copy_n(reinterpret_cast<const uint8_t*>(&value), width, data.begin() + at);
      break;
    }
    case 3:
      data.resize(at);
      break;
    default: {  // repeat a piece
      const Bytes piece(data.begin() + at,
                        data.begin() + at + std::min<size_t>(rng() % 40, data.size() - at));
      data.insert(data.begin() + rng() % data.size(), piece.begin(), piece.end());
    }
  }
}

}  // namespace

// usage: gguf_fuzz ROUNDS SEED_FILE...
int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("usage: gguf_fuzz ROUNDS SEED_FILE...\n", stderr), 2;
  std::mt19937_64 rng(1);
  long accepted = 0;
  const long rounds = std::atol(argv[1]);
  for (int i = 2; i < argc; ++i) {
    std::ifstream stream(argv[i], std::ios::binary);
    const Bytes seed{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (LLVMFuzzerTestOneInput(seed.data(), seed.size()) != 0) {
      std::fprintf(stderr, "%s: is not a well-formed seed\n", argv[i]);
      return 1;
    }
    for (long round = 0; round < rounds; ++round) {
      Bytes data = seed;
      for (uint64_t count = 1 + rng() % 4; count > 0; --count) mutate(data, rng);
      // An exact copy, so that the sanitizer sees the first byte past the end.
      const Bytes exact(data.begin(), data.end());
      accepted += LLVMFuzzerTestOneInput(exact.data(), exact.size()) == 0;
    }
  }
  std::printf("gguf_fuzz: %ld rounds a seed, %ld mutants accepted, no fault\n", rounds, accepted);
}
#endif
