// Claims: how threads share the items of one region without waiting for each other to show up.
//
// Each thread has a share of adjacent items and takes those first, then what is left of the
// others'. A region is closed when its items are done, whoever did them: a thread that was not
// running in the meantime holds nobody up. Every number carries the step's tag, so that a thread
// left over from an earlier step finds nothing to take and goes home.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/panel.h"

namespace octavo {

class Claims {
 public:
  static constexpr int64_t kMostItems = (1 << 20) - 1;

  explicit Claims(int num_threads)
      : num_threads_(num_threads), shares_(new Share[static_cast<size_t>(num_threads)]) {}

  // Before the step, by the thread that starts it. items <= kMostItems.
  void open(uint32_t tag, int64_t items) {
    left_.store(pack_left(tag, items), std::memory_order_relaxed);
    for (int t = 0; t < num_threads_; ++t) {
      shares_[t].state.store(
          pack_share(tag, items * t / num_threads_, items * (t + 1) / num_threads_),
          std::memory_order_release);
    }
  }

  // An item for thread tid, or -1: nothing is left to take in the step of this tag.
  int64_t claim(uint32_t tag, int tid) {
    for (int i = 0; i < num_threads_; ++i) {
      const int owner = tid + i < num_threads_ ? tid + i : tid + i - num_threads_;
      const int64_t item = take(shares_[owner].state, tag);
      if (item >= 0) return item;
    }
    return -1;
  }

  // An item claimed before is done. True if it was the last.
  bool finish() { return (left_.fetch_sub(1, std::memory_order_acq_rel) & kLeftMask) == 1; }

  // All items of the step are done, or the step itself is over.
  bool closed(uint32_t tag) const {
    const uint64_t left = left_.load(std::memory_order_acquire);
    return (left & kLeftMask) == 0 || left >> 32 != tag;
  }

  // What each thread reads after this region: memory of the next one, and the first weights of a
  // later one. Hints that may be out of date.
  void set_ahead(int tid, const uint8_t* memory, const PanelStream& weights) {
    shares_[tid].memory.store(memory, std::memory_order_relaxed);
    shares_[tid].weights.store(weights.data, std::memory_order_relaxed);
    shares_[tid].panel_bytes.store(weights.panel_bytes, std::memory_order_relaxed);
  }
  const uint8_t* memory_ahead(int tid) const {
    return shares_[tid].memory.load(std::memory_order_relaxed);
  }
  PanelStream weights_ahead(int tid) const {
    return {shares_[tid].weights.load(std::memory_order_relaxed),
            shares_[tid].panel_bytes.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr uint64_t kLeftMask = 0xffffffffu;
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};  // tag (24 bits), next (20), end (20)
    std::atomic<const uint8_t*> memory{nullptr};
    std::atomic<const uint8_t*> weights{nullptr};
    std::atomic<size_t> panel_bytes{0};
  };

  static uint64_t pack_left(uint32_t tag, int64_t items) {
    return static_cast<uint64_t>(tag) << 32 | static_cast<uint64_t>(items);
  }
  static uint64_t pack_share(uint32_t tag, int64_t next, int64_t end) {
    return static_cast<uint64_t>(tag & 0xffffffu) << 40 | static_cast<uint64_t>(next) << 20 |
           static_cast<uint64_t>(end);
  }

  static int64_t take(std::atomic<uint64_t>& state, uint32_t tag) {
    uint64_t s = state.load(std::memory_order_acquire);
    for (;;) {
      const uint64_t next = s >> 20 & 0xfffffu, end = s & 0xfffffu;
      if (s >> 40 != (tag & 0xffffffu) || next >= end) return -1;
      if (state.compare_exchange_weak(s, s + (uint64_t{1} << 20), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return static_cast<int64_t>(next);
      }
    }
  }

  int num_threads_;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<uint64_t> left_{0};  // tag (32 bits), items not done (32)
};

}  // namespace octavo
