// A persistent pool: the caller is thread 0, workers are 1..size-1. One job at a time.
//
// run(f) calls f on every thread and returns when all are done. launch(f) starts f on the workers,
// runs it on the caller and returns when that call returns: a worker that was held up may join in
// later or not at all, so f hands out work by claims (claims.h). Workers spin a short while after a
// job, then sleep: an idle pool costs no CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace octavo {

// Polls until done() is true: spins, then lets others run, for about 100 us. False: not yet.
bool spin_until(const std::function<bool()>& done);

class ThreadPool {
 public:
  // tag: a number of this job, never 0 and unlike that of any job still running.
  struct Job {
    std::function<void(int tid, uint32_t tag)> f;
    bool joined = false;  // run waits for every worker; launch does not
  };

  // Throws std::runtime_error if the system does not give so many threads.
  explicit ThreadPool(int size);
  ~ThreadPool() { shut_down(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Exceptions must not leave f.
  void run(const std::function<void(int tid)>& f);

  // Callable only inside run, by every thread the same number of times: all wait for each other.
  void barrier();

  // The tag that the next launch will have.
  uint32_t next_tag() const { return epoch_.load(std::memory_order_relaxed) + 1; }
  // The job must live until shut_down.
  void launch(const Job& job);

  // How long workers spin for the next job before they yield and sleep.
  void linger(std::chrono::microseconds time) {
    linger_us_.store(static_cast<int>(time.count()), std::memory_order_relaxed);
  }

  // Ends the workers. Idempotent; nothing may be started afterwards.
  void shut_down();

 private:
  struct Slot {
    std::atomic<uint32_t> tag{0};
    std::atomic<const Job*> job{nullptr};
  };

  uint32_t post(const Job& job);
  void arrive();
  void worker(int tid);

  int size_;
  std::atomic<int> linger_us_{0};
  std::vector<std::thread> threads_;
  Slot slots_[4];                                 // by tag, so that a late worker sees its own job
  alignas(64) std::atomic<uint32_t> epoch_{0};    // tag of the newest job
  alignas(64) std::atomic<uint32_t> arrived_{0};  // of the joined job: threads done
  alignas(64) std::atomic<uint32_t> phase_{0};    // bumped when all are done
  std::atomic<bool> stop_{false};
};

}  // namespace octavo
