#include "runtime/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

// Spins of about 40 ns each before sleeping: roughly 50 us in a barrier or between jobs, longer
// than the gap between two regions of a step and shorter than anyone notices as idle cost.
constexpr int kSpins = 1500;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until a != old: spin, then sleep.
inline uint32_t wait_change(std::atomic<uint32_t>& a, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    uint32_t now = a.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
  }
  a.wait(old, std::memory_order_acquire);
  return a.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int size) : size_(size < 1 ? 1 : size) {
  threads_.reserve(size_ - 1);
  for (int tid = 1; tid < size_; ++tid) threads_.emplace_back([this, tid] { worker(tid); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& t : threads_) t.join();
}

void ThreadPool::run(const std::function<void(int)>& f) {
  if (size_ == 1) {
    f(0);
    return;
  }
  job_ = &f;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  f(0);
  barrier();
}

void ThreadPool::barrier() {
  if (size_ == 1) return;
  uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait_change(phase_, phase);
}

void ThreadPool::worker(int tid) {
  uint32_t seen = 0;
  for (;;) {
    seen = wait_change(epoch_, seen);
    if (stop_.load(std::memory_order_acquire)) return;
    (*job_)(tid);
    barrier();
  }
}

}  // namespace octavo
