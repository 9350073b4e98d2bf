// One anonymous mapping on huge pages where the kernel gives them. Zero-filled, touched lazily.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

class Arena {
 public:
  Arena() = default;
  explicit Arena(size_t bytes);  // throws std::bad_alloc
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void free_mapping();

  uint8_t* data_ = nullptr;  // 2 MB aligned
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

}  // namespace octavo
