#include "gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace octavo::gguf {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { close(fd); }
};

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), path);
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it is refused just below.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path_, errno);
  const Descriptor closer{fd};
  struct stat status{};
  if (fstat(fd, &status) != 0) fail(path_, errno);
  if (!S_ISREG(status.st_mode)) fail(path_, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  if (status.st_size == 0) return;  // mmap refuses an empty range; no bytes need no mapping
  size_ = static_cast<size_t>(status.st_size);
  void* map = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) fail(path_, errno);
  data_ = static_cast<const uint8_t*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t length) const noexcept {
  if (offset > size_ || length > size_ - offset) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + length) / page * page;
  if (begin >= end) return;
  madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace octavo::gguf
