#include "runtime/thread_pool.h"

#include <sched.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

constexpr int kSpins = 1024;  // of about 40 ns: longer than the gap between two regions
constexpr int kYields = 128;  // then let whoever holds this core's time get on
constexpr uint32_t kNoTag = 0;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class F>
bool poll(F done) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (done()) return true;
    sched_yield();
  }
  return false;
}

// Spins until a != old, or for so long.
void spin_between_jobs(const std::atomic<uint32_t>& a, uint32_t old, int microseconds) {
  constexpr int kSpinsPerLook = 32;  // at the clock
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (a.load(std::memory_order_acquire) != old) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
}

// Waits until a != old: spin, then sleep.
inline uint32_t wait_change(std::atomic<uint32_t>& a, uint32_t old) {
  if (!poll([&] { return a.load(std::memory_order_acquire) != old; })) {
    a.wait(old, std::memory_order_acquire);
  }
  return a.load(std::memory_order_acquire);
}

}  // namespace

bool spin_until(const std::function<bool()>& done) {
  return poll(done);
}

ThreadPool::ThreadPool(int size) : size_(size < 1 ? 1 : size) {
  threads_.reserve(size_ - 1);
  try {
    for (int tid = 1; tid < size_; ++tid) threads_.emplace_back([this, tid] { worker(tid); });
  } catch (const std::system_error& error) {
    const std::string got = std::to_string(threads_.size() + 1);
    shut_down();  // those that did start, or their destructors would end the program
    throw std::runtime_error("threads: started " + got + " of " + std::to_string(size_) + ": " +
                             error.what());
  }
}

void ThreadPool::shut_down() {
  stop_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& t : threads_) t.join();
  threads_.clear();
}

uint32_t ThreadPool::post(const Job& job) {
  const uint32_t tag = next_tag();
  Slot& slot = slots_[tag % 4];
  slot.tag.store(kNoTag, std::memory_order_seq_cst);
  slot.job.store(&job, std::memory_order_seq_cst);
  slot.tag.store(tag, std::memory_order_seq_cst);
  epoch_.store(tag, std::memory_order_release);
  epoch_.notify_all();
  return tag;
}

void ThreadPool::run(const std::function<void(int)>& f) {
  if (size_ == 1) return f(0);
  const Job job{[&f](int tid, uint32_t) { f(tid); }, true};
  job.f(0, post(job));
  barrier();
}

void ThreadPool::barrier() {
  if (size_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  arrive();
  while (phase_.load(std::memory_order_acquire) == phase) wait_change(phase_, phase);
}

void ThreadPool::launch(const Job& job) {
  job.f(0, post(job));
}

void ThreadPool::arrive() {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != static_cast<uint32_t>(size_)) return;
  arrived_.store(0, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_acq_rel);
  phase_.notify_all();
}

void ThreadPool::worker(int tid) {
  uint32_t seen = kNoTag;
  for (;;) {
    if (seen != kNoTag) spin_between_jobs(epoch_, seen, linger_us_.load(std::memory_order_relaxed));
    const uint32_t tag = wait_change(epoch_, seen);
    if (stop_.load(std::memory_order_acquire)) return;
    Slot& slot = slots_[tag % 4];
    const Job* job = slot.job.load(std::memory_order_seq_cst);
    if (slot.tag.load(std::memory_order_seq_cst) != tag)
      continue;  // four jobs late: take the newest
    seen = tag;
    const bool joined = job->joined;
    job->f(tid, tag);
    if (joined) arrive();
  }
}

}  // namespace octavo
