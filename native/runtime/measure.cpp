#include "runtime/measure.h"

#include <chrono>
#include <functional>
#include <memory>

#include "runtime/claims.h"
#include "runtime/thread_pool.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<double> measure_barrier(int threads, int rounds, int repeats) {
  ThreadPool pool(threads);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    pool.run([&](int tid) {
      pool.barrier();  // all threads are awake
      const auto start = Clock::now();
      for (int i = 0; i < rounds; ++i) pool.barrier();
      if (tid == 0) seconds.push_back(seconds_since(start) / rounds);
    });
  }
  return seconds;
}

std::vector<double> measure_region(int threads, int rounds, int repeats) {
  std::vector<std::unique_ptr<Claims>> regions;
  for (int i = 0; i < rounds; ++i) regions.push_back(std::make_unique<Claims>(threads));
  ThreadPool pool(threads);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const uint32_t tag = static_cast<uint32_t>(repeat) + 1;
    for (auto& claims : regions) claims->open(tag, threads);
    pool.run([&](int tid) {
      pool.barrier();  // all threads are awake
      const auto start = Clock::now();
      for (auto& claims : regions) {
        while (claims->claim(tag, tid) >= 0) claims->finish();
        while (!claims->closed(tag) && !spin_until([&] { return claims->closed(tag); })) {
        }
      }
      if (tid == 0) seconds.push_back(seconds_since(start) / rounds);
    });
  }
  return seconds;
}

std::vector<double> measure_job(int threads, int rounds, int repeats) {
  ThreadPool pool(threads);
  std::vector<double> seconds;
  const std::function<void(int)> nothing = [](int) {};
  pool.run(nothing);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) pool.run(nothing);
    seconds.push_back(seconds_since(start) / rounds);
  }
  return seconds;
}

}  // namespace octavo
