#include "gguf/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

namespace octavo::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian");

constexpr uint64_t kMaxNameBytes = 65535;  // the format's limit for keys
constexpr uint64_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32;
// Fewest bytes that one entry takes: what bounds a count by the file's size.
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;        // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, n_dims, 1 dim, type, offset
constexpr uint64_t kMinStringBytes = 8;

bool multiply(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

std::string number(uint64_t value) {
  return std::to_string(value);
}

// Names come from the file: only printable ASCII goes into a message, and not too much of it.
std::string quoted(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  return out + (name.size() > 80 ? "...'" : "'");
}

// A cursor that never leaves the file. `field` names what is being read, for the message.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> file) : file_(file) {}

  uint64_t position() const { return at_; }
  uint64_t remaining() const { return file_.size() - at_; }

  const uint8_t* take(uint64_t count, const std::string& field) {
    if (count > remaining()) {
      throw FormatError(field + ": needs " + number(count) + " bytes at offset " + number(at_) +
                        ", but only " + number(remaining()) + " are left in the file");
    }
    const uint8_t* begin = file_.data() + at_;
    at_ += count;
    return begin;
  }

  template <typename T>
  T read(const std::string& field) {
    T value;
    std::memcpy(&value, take(sizeof(T), field), sizeof(T));
    return value;
  }

  std::string_view string(const std::string& field) {
    const auto length = read<uint64_t>(field + " length");
    return {reinterpret_cast<const char*>(take(length, field)), length};
  }

  // A count of entries that take at least `entry_bytes` each.
  uint64_t count(uint64_t entry_bytes, const std::string& field) {
    const auto value = read<uint64_t>(field);
    return bounded(value, entry_bytes, field);
  }

  uint64_t bounded(uint64_t value, uint64_t entry_bytes, const std::string& field) const {
    if (value > remaining() / entry_bytes) {
      throw FormatError(field + ": claims " + number(value) + ", more than the " +
                        number(remaining()) + " bytes left in the file can hold");
    }
    return value;
  }

 private:
  std::span<const uint8_t> file_;
  uint64_t at_ = 0;
};

void check_bools(const KeyValue& entry, const std::string& field) {
  for (uint64_t i = 0; i < entry.count; ++i) {
    if (entry.payload[i] > 1) {
      throw FormatError(field + ": a bool has the value " + number(entry.payload[i]) +
                        ", expected 0 or 1");
    }
  }
}

bool known_type(uint32_t type) {
  return type <= static_cast<uint32_t>(ValueType::kFloat64);
}

ValueType read_type(Cursor& cursor, const std::string& field) {
  const auto type = cursor.read<uint32_t>(field + " type");
  if (!known_type(type)) {
    throw FormatError(field + " type: got " + number(type) + ", expected a value type 0 to 12");
  }
  return static_cast<ValueType>(type);
}

void read_elements(Cursor& cursor, KeyValue& entry, const std::string& field) {
  const size_t element = fixed_size(entry.type);
  entry.payload = cursor.take(0, field);
  if (element == 0) {
    cursor.bounded(entry.count, kMinStringBytes, field + " array length");
    for (uint64_t i = 0; i < entry.count; ++i) cursor.string(field);
    return;
  }
  cursor.bounded(entry.count, element, field + " array length");
  cursor.take(entry.count * element, field);
  if (entry.type == ValueType::kBool) check_bools(entry, field);
}

std::string_view read_name(Cursor& cursor, const std::string& field) {
  const std::string_view name = cursor.string(field);
  if (name.empty() || name.size() > kMaxNameBytes) {
    throw FormatError(field + ": has " + number(name.size()) + " bytes, expected 1 to " +
                      number(kMaxNameBytes));
  }
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
    throw FormatError(field + ": " + quoted(name) + " has a byte that is not printable ASCII");
  }
  return name;
}

KeyValue read_key_value(Cursor& cursor, uint64_t index) {
  KeyValue entry{};
  entry.key = read_name(cursor, "metadata entry " + number(index) + " key");
  const std::string field = "metadata " + quoted(entry.key);
  entry.type = read_type(cursor, field);
  entry.is_array = entry.type == ValueType::kArray;
  entry.count = 1;
  if (entry.is_array) {
    entry.type = read_type(cursor, field + " array element");
    if (entry.type == ValueType::kArray) {
      throw FormatError(field + ": is an array of arrays, which no GGUF writer makes");
    }
    entry.count = cursor.read<uint64_t>(field + " array length");
  }
  read_elements(cursor, entry, field);
  return entry;
}

uint32_t read_version(Cursor& cursor) {
  const uint8_t* magic = cursor.take(4, "magic");
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    throw FormatError("magic: got " + quoted({reinterpret_cast<const char*>(magic), 4}) +
                      ", expected 'GGUF'; this is not a GGUF file");
  }
  const auto version = cursor.read<uint32_t>("version");
  if (version == 2 || version == 3) return version;
  if ((version & 0xffff) == 0 && version != 0) {
    throw FormatError("version: the file is big-endian, expected little-endian");
  }
  throw FormatError("version: got " + number(version) +
                    ", expected 2 or 3; convert the model anew with current tools");
}

uint64_t alignment_of(const std::vector<KeyValue>& metadata) {
  for (const KeyValue& entry : metadata) {
    if (entry.key != "general.alignment") continue;
    if (entry.type != ValueType::kUint32 || entry.is_array) {
      throw FormatError("metadata 'general.alignment': expected one uint32");
    }
    uint32_t value;
    std::memcpy(&value, entry.payload, sizeof value);
    if (!std::has_single_bit(value)) {
      throw FormatError("metadata 'general.alignment': got " + number(value) +
                        ", expected a power of two");
    }
    return value;
  }
  return kDefaultAlignment;
}

// Reads n_dims sizes into the shape and returns their product.
uint64_t read_shape(Cursor& cursor, TensorInfo& tensor, const std::string& field) {
  const auto num_dims = cursor.read<uint32_t>(field + " n_dims");
  if (num_dims == 0 || num_dims > kMaxDims) {
    throw FormatError(field + " n_dims: got " + number(num_dims) + ", expected 1 to 4");
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto size = cursor.read<uint64_t>(field + " dimension");
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (size == 0 || size > kMax || !multiply(elements, size, elements) || elements > kMax) {
      throw FormatError(field + " dimension " + number(i) + ": " + number(size) +
                        " makes an empty tensor or more elements than can be counted");
    }
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return elements;
}

TensorInfo read_tensor(Cursor& cursor, uint64_t index, const BlockSizes& block_sizes) {
  TensorInfo tensor{};
  tensor.name = read_name(cursor, "tensor " + number(index) + " name");
  const std::string field = "tensor " + quoted(tensor.name);
  const uint64_t elements = read_shape(cursor, tensor, field);
  tensor.type = cursor.read<uint32_t>(field + " type");
  tensor.begin = cursor.read<uint64_t>(field + " offset");
  const auto block = block_sizes.find(tensor.type);
  if (block == block_sizes.end()) {
    throw FormatError(field + " type: " + number(tensor.type) + " is not a known tensor type");
  }
  const auto innermost = static_cast<uint64_t>(tensor.shape.back());
  if (innermost % block->second.elems != 0) {
    throw FormatError(field + " dimension 0: " + number(innermost) + " is not a multiple of " +
                      number(block->second.elems) + ", the block of its type");
  }
  if (!multiply(elements / block->second.elems, block->second.bytes, tensor.size_bytes)) {
    throw FormatError(field + ": its size in bytes overflows");
  }
  return tensor;
}

// Turns offsets relative to the data section into file offsets, after checking them.
void place_tensors(Header& header, uint64_t header_end, uint64_t file_size) {
  uint64_t start = 0;
  if (__builtin_add_overflow(header_end, header.alignment - 1, &start)) start = file_size + 1;
  start -= start % header.alignment;
  for (TensorInfo& tensor : header.tensors) {
    const std::string field = "tensor " + quoted(tensor.name) + " offset";
    if (tensor.begin % header.alignment != 0) {
      throw FormatError(field + ": " + number(tensor.begin) +
                        " is not a multiple of the alignment " + number(header.alignment));
    }
    if (start > file_size || tensor.begin > file_size - start ||
        tensor.size_bytes > file_size - start - tensor.begin) {
      throw FormatError(field + ": data at " + number(tensor.begin) + " of " +
                        number(tensor.size_bytes) + " bytes ends outside the file of " +
                        number(file_size) + " bytes; is it truncated?");
    }
    tensor.begin += start;
  }
}

void check_overlaps(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->begin + order[i - 1]->size_bytes > order[i]->begin) {
      throw FormatError("tensor " + quoted(order[i]->name) + " offset: its data overlaps that of " +
                        quoted(order[i - 1]->name));
    }
  }
}

template <typename Entries, typename Name>
void check_unique(const Entries& entries, Name name, const char* what) {
  std::unordered_set<std::string_view> seen;
  for (const auto& entry : entries) {
    if (!seen.insert(name(entry)).second) {
      throw FormatError(std::string(what) + " " + quoted(name(entry)) + ": appears twice");
    }
  }
}

}  // namespace

size_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string_view next_string(const uint8_t*& at) {
  uint64_t length;
  std::memcpy(&length, at, sizeof length);
  const auto* text = reinterpret_cast<const char*>(at + sizeof length);
  at += sizeof length + length;
  return {text, length};
}

Header read_header(std::span<const uint8_t> file, const BlockSizes& block_sizes) {
  Cursor cursor(file);
  Header header{};
  header.version = read_version(cursor);
  const uint64_t num_tensors = cursor.count(kMinTensorBytes, "tensor count");
  const uint64_t num_entries = cursor.count(kMinKeyValueBytes, "metadata count");
  for (uint64_t i = 0; i < num_entries; ++i) header.metadata.push_back(read_key_value(cursor, i));
  check_unique(header.metadata, [](const KeyValue& e) { return e.key; }, "metadata");
  header.alignment = alignment_of(header.metadata);
  for (uint64_t i = 0; i < num_tensors; ++i) {
    header.tensors.push_back(read_tensor(cursor, i, block_sizes));
  }
  check_unique(header.tensors, [](const TensorInfo& t) { return t.name; }, "tensor");
  place_tensors(header, cursor.position(), file.size());
  check_overlaps(header.tensors);
  return header;
}

}  // namespace octavo::gguf
