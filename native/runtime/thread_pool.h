// A persistent pool: the caller is thread 0, workers are 1..size-1. One job at a time.
//
// run(f) calls f(tid) on every thread and returns when all are done. Inside a job, barrier() makes
// all threads wait for each other (a sense-counting spin, then a futex sleep). Workers spin a short
// while after a job, then sleep: an idle pool costs no CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace octavo {

class ThreadPool {
 public:
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Exceptions must not leave f.
  void run(const std::function<void(int tid)>& f);

  // Callable only inside run, by every thread the same number of times.
  void barrier();

 private:
  void worker(int tid);

  int size_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* job_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};    // bumped once per job
  alignas(64) std::atomic<uint32_t> arrived_{0};  // barrier: threads in
  alignas(64) std::atomic<uint32_t> phase_{0};    // barrier: bumped when all are in
  std::atomic<bool> stop_{false};
};

}  // namespace octavo
