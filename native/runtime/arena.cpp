#include "runtime/arena.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace octavo {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

Arena::Arena(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // Small arenas stay on plain pages: a huge page would be mostly waste.
  const bool huge = bytes >= kHugePage;
  mapping_size_ = bytes + (huge ? kHugePage : 0);
  mapping_ = mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  data_ = static_cast<uint8_t*>(mapping_);
  if (!huge) return;
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapping_);
  data_ = reinterpret_cast<uint8_t*>((start + kHugePage - 1) & ~(kHugePage - 1));
#if defined(MADV_HUGEPAGE)
  // Whole huge pages only, so that a tail of a few kB does not cost 2 MB. Best effort.
  madvise(data_, bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
}

void Arena::free_mapping() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
  mapping_ = nullptr;
  data_ = nullptr;
}

Arena::~Arena() {
  free_mapping();
}

Arena::Arena(Arena&& other) noexcept {
  *this = std::move(other);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  free_mapping();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_size_ = std::exchange(other.mapping_size_, 0);
  return *this;
}

}  // namespace octavo
