#include "kernels/measure.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>

#include "kernels/kernel_table.h"
#include "runtime/thread_pool.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Anonymous memory, on huge pages where wanted and where the system grants them.
class PageBuffer {
 public:
  explicit PageBuffer(size_t bytes, bool huge_pages = true)
      : bytes_((bytes + kPage - 1) / kPage * kPage + kPage) {
    map_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    madvise(map_, bytes_, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
    (void)huge_pages;
#endif
  }
  ~PageBuffer() { munmap(map_, bytes_); }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  uint8_t* data() const {
    const auto at = reinterpret_cast<uintptr_t>(map_);
    return reinterpret_cast<uint8_t*>((at + kPage - 1) / kPage * kPage);
  }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  size_t bytes_;
  void* map_ = nullptr;
};

// Processor time of this thread, in seconds.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The best of many runs of about a millisecond of `loop` on all threads at once, operations a
// second, each thread by its own processor time: where the machine is shared, a thread that had to
// wait for a core says nothing about the core.
template <typename Loop>
double measure_peak(Loop loop, int threads) {
  ThreadPool pool(threads);
  constexpr int64_t kLoops = 1 << 17;
  double best = 0.0;
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<double> rates(static_cast<size_t>(threads));
    pool.run([&](int tid) {
      const double start = thread_seconds();
      const auto operations = static_cast<double>(loop(kLoops));
      rates[static_cast<size_t>(tid)] = operations / (thread_seconds() - start);
    });
    best = std::max(best, std::accumulate(rates.begin(), rates.end(), 0.0));
  }
  return best;
}

// Random elements with scales of a sane size: the raw bytes of 16 rows, for any type.
std::vector<uint8_t> random_rows(SourceType source, int64_t k) {
  std::vector<uint8_t> rows(source_row_bytes(source, k) * kPanelRows);
  std::minstd_rand random(1);
  // Every float16, bfloat16 or float32 made of bytes 0x00..0x3b is finite and below 1.
  for (auto& byte : rows) byte = static_cast<uint8_t>(random() % 0x3c);
  // Floats and powers near 1: tiny ones would be subnormal, or their sums, and slow.
  const auto set = [&](size_t first, size_t step, uint8_t byte) {
    for (size_t i = first; i < rows.size(); i += step) rows[i] = byte;
  };
  if (source == SourceType::kMXFP4) set(0, 17, 120);
  if (source == SourceType::kBF16) set(1, 2, 0x3b);
  if (source == SourceType::kF32) set(3, 4, 0x3b);
  if (source == SourceType::kE4M3 || source == SourceType::kE4M3_32 ||
      source == SourceType::kE5M2) {
    set(3, 36, 0x3b);
  }
  if (source == SourceType::kNVFP4_D) set(3, 22, 0x3b);
  return rows;
}

// `copies` packed copies of a random matrix in `memory`, every panel the same.
void fill_panels(const PanelMatrix& m, int64_t copies, uint8_t* memory) {
  const std::vector<uint8_t> rows = random_rows(m.file, m.k);
  PanelMatrix one = m;
  one.n = kPanelRows;
  one.num_panels = 1;
  pack_panels(one, rows.data(), 0, 1, memory);
  for (int64_t p = 1; p < m.num_panels * copies; ++p) {
    std::memcpy(memory + static_cast<size_t>(p) * m.panel_bytes, memory, m.panel_bytes);
  }
}

struct Product {
  PanelMatrix matrix;
  QuantizedRows q;
  const float* x;
  float* out;

  void run(int64_t rows, int tid, int threads) const {
    const int64_t from = matrix.num_panels * tid / threads / 2 * 2;
    const int64_t to =
        tid + 1 == threads ? matrix.num_panels : matrix.num_panels * (tid + 1) / threads / 2 * 2;
    if (is_float(matrix.layout)) {
      linear_f32(matrix, x, matrix.k, 0, rows, from, to, out, matrix.n);
    } else {
      linear_q8(matrix, q, 0, rows, from, to, out, matrix.n);
    }
  }
};

}  // namespace

double measure_int8_peak(int threads, int bits) {
  return measure_peak([bits](int64_t loops) { return kernels().int8_loop(loops, bits); }, threads);
}

double measure_f32_peak(int threads) {
  const auto loop = kernels().f32_loop;
  return loop == nullptr ? 0.0 : measure_peak(loop, threads);
}

double measure_bf16_peak(int threads) {
  const auto loop = kernels().bf16_loop;
  return loop == nullptr ? 0.0 : measure_peak(loop, threads);
}

double measure_read_speed(int64_t bytes, int threads, bool huge_pages) {
  ThreadPool pool(threads);
  // Pieces of 64 MB, in turn: some milliseconds each, and out of the caches when read again if all
  // of them are some times what the last one holds.
  const auto pieces = static_cast<size_t>(std::max<int64_t>(1, bytes >> 26));
  const size_t share = static_cast<size_t>(bytes / threads) / pieces / 512 * 512;
  const size_t piece = share * static_cast<size_t>(threads);
  PageBuffer memory(piece * pieces, huge_pages);
  std::memset(memory.data(), 1, piece * pieces);
  double best = 0.0;
  std::vector<int64_t> sink(static_cast<size_t>(threads));
  const auto near = kernels().read_near_loop;
  for (size_t repeat = 0; repeat < 16 * pieces; ++repeat) {
    const uint8_t* data = memory.data() + repeat % pieces * piece;
    const bool odd_turn = repeat / pieces % 2 == 1;
    const auto loop = near != nullptr && odd_turn ? near : kernels().read_loop;
    const auto start = Clock::now();
    pool.run([&](int tid) {
      const auto t = static_cast<size_t>(tid);
      sink[t] += loop(data + share * t, share);
    });
    best = std::max(best, static_cast<double>(piece) / seconds_since(start));
  }
  return best;
}

std::vector<double> measure_linear(SourceType source, int64_t n, int64_t k, bool as_float,
                                   int64_t rows, int threads, int64_t footprint, int repeats,
                                   Products products) {
  ThreadPool pool(threads);
  PanelMatrix matrix = plan_panels(source, n, k, as_float, products == Products::kBf16);
  const auto size = static_cast<int64_t>(matrix.size_bytes());
  const int64_t copies = std::max<int64_t>(1, (footprint + size - 1) / size);
  PageBuffer weights(static_cast<size_t>(size * copies));
  fill_panels(matrix, copies, weights.data());

  std::vector<float> x(static_cast<size_t>(rows * k));
  std::minstd_rand random(2);
  for (auto& v : x) v = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
  PageBuffer activations(QuantizedRows::bytes(rows, k, products));
  QuantizedRows q = QuantizedRows::in(activations.data(), rows, k, products);
  for (int64_t r = 0; r < rows; ++r) quantize_groups(x.data() + r * k, q, r, 0, q.groups);
  PageBuffer out(static_cast<size_t>(rows * n) * sizeof(float));

  const Product product{matrix, q, x.data(), reinterpret_cast<float*>(out.data())};
  std::vector<double> seconds(static_cast<size_t>(repeats));
  pool.run([&](int tid) {
    Product mine = product;
    for (int repeat = -1; repeat < repeats; ++repeat) {  // the first one warms up
      mine.matrix.data = weights.data() + static_cast<size_t>((repeat + copies) % copies * size);
      pool.barrier();
      const auto start = Clock::now();
      mine.run(rows, tid, threads);
      pool.barrier();
      if (repeat >= 0 && tid == 0) seconds[static_cast<size_t>(repeat)] = seconds_since(start);
    }
  });
  return seconds;
}

}  // namespace octavo
