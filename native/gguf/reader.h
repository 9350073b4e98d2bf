// Reads the header of a GGUF file (versions 2 and 3, little-endian). The file is untrusted: every
// count, length, type, product and offset is checked against the bytes that are there before it is
// used, and nothing is allocated in proportion to a number that the file merely claims.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace octavo::gguf {

// The file breaks the format. what() names the field; the binding adds the path.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of one element of a fixed-size type; 0 for strings, arrays and unknown types.
size_t fixed_size(ValueType type);

// One key and its value, already checked. Views point into the file's bytes.
struct KeyValue {
  std::string_view key;
  ValueType type;  // of the value, or of the elements if is_array
  bool is_array;
  uint64_t count;          // elements; 1 for a scalar
  const uint8_t* payload;  // first element; strings are (uint64 length, bytes) one after another
};

struct TensorInfo {
  std::string_view name;
  std::vector<int64_t> shape;  // row-major, outermost first (the file lists the innermost first)
  uint32_t type;               // GGML type id
  uint64_t begin;              // first byte in the file
  uint64_t size_bytes;
};

// Elements and bytes of one storage block, by GGML type id.
struct BlockSize {
  uint64_t elems;
  uint64_t bytes;
};
using BlockSizes = std::unordered_map<uint32_t, BlockSize>;

struct Header {
  uint32_t version;
  uint64_t alignment;
  std::vector<KeyValue> metadata;
  std::vector<TensorInfo> tensors;
};

// Throws FormatError. The header views `file`, which must outlive it.
Header read_header(std::span<const uint8_t> file, const BlockSizes& block_sizes);

// Reads one string of a checked payload and moves `at` behind it.
std::string_view next_string(const uint8_t*& at);

}  // namespace octavo::gguf
