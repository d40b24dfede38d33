// The lock of the shim. Every op, allocation and release takes it, so it must be cheap where nobody else wants it:
// std::recursive_mutex costs more than twice as much.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace lowtide::shim {

// One thread at a time, that one as often as it likes.
class RecursiveMutex {
 public:
  void lock() {
    const pthread_t self = pthread_self();
    if (holder_.load(std::memory_order_relaxed) == self) {  // nobody else writes that
      ++num_again_;
      return;
    }
    mutex_.lock();
    holder_.store(self, std::memory_order_relaxed);
  }

  void unlock() {
    if (num_again_ > 0) {
      --num_again_;
      return;
    }
    holder_.store(pthread_t{}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<pthread_t> holder_{};  // pthread_t{}: nobody
  std::int32_t num_again_ = 0;       // of its holder, beyond the first time
};

// Guards everything of the shim. Recursive, because what happens under it can drop tensors.
inline RecursiveMutex& shim_mutex() {
  static auto* mutex = new RecursiveMutex;  // outlives every static: tensors die late
  return *mutex;
}

using Lock = std::lock_guard<RecursiveMutex>;
using UniqueLock = std::unique_lock<RecursiveMutex>;

}  // namespace lowtide::shim
