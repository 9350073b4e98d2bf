// A whole file mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace octavo::gguf {

// Owns the mapping; the bytes stay valid for as long as the object lives. Not copyable.
class MappedFile {
 public:
  // Throws std::system_error with the path when the file cannot be opened or mapped.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  // Gives the whole pages inside [offset, offset + length) back to the OS. The mapping is private,
  // read-only and file-backed, so a later read faults the same bytes in again.
  void release(size_t offset, size_t length) const noexcept;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace octavo::gguf
