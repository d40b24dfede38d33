// Counts the bytes that all threads of this process take from malloc between two moments, without LD_PRELOAD.
//
//   bytes │        ╭─╮  peak_bytes
//         │   ╭────╯ ╰──╮
//       0 │───╯         ╰──  end_bytes
//         └─start()────stop()──▶
//
// Counted is malloc_usable_size, after a block was obtained and before it is given back, so memory that changes hands
// is never counted twice. Blocks from before the window lower the level when they are freed. Not seen: who took the
// address of malloc at run time (dlsym) or calls it within libc (strdup), and mmap.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "lowtide/malloc_slots.hpp"

#ifdef LOWTIDE_HAS_MALLOC_SLOTS
#include <algorithm>
#include <cerrno>
#include <malloc.h>
#include <memory>
#include <mutex>
#endif

namespace lowtide {

// Malloc cannot be counted here, or not now; the text says why.
class WindowError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes above the level at the start of a window.
struct WindowBytes {
  std::int64_t peak_bytes = 0;
  std::int64_t end_bytes = 0;
};

#ifndef LOWTIDE_HAS_MALLOC_SLOTS

class MallocWindow {
 public:
  static MallocWindow& instance() {
    static MallocWindow window;
    return window;
  }
  std::optional<std::string> unsupported_reason() const {
    return "malloc can be counted on Linux with glibc on x86-64 and aarch64 only";
  }
  void start() { throw WindowError(*unsupported_reason()); }
  WindowBytes stop() { throw WindowError("no window is open: call start first"); }
  std::int64_t num_slots() const { return 0; }
};

#else

namespace counting {

struct Family {
  void* (*malloc)(std::size_t) = nullptr;
  void* (*calloc)(std::size_t, std::size_t) = nullptr;
  void* (*realloc)(void*, std::size_t) = nullptr;
  void* (*memalign)(std::size_t, std::size_t) = nullptr;
  void* (*aligned_alloc)(std::size_t, std::size_t) = nullptr;
  int (*posix_memalign)(void**, std::size_t, std::size_t) = nullptr;
  void (*free)(void*) = nullptr;
  std::size_t (*usable_size)(void*) = nullptr;
};

// Written once, before the first slot is redirected.
inline Family real;

// A cache line each: every thread writes the level, almost none the peak.
alignas(64) inline std::atomic<bool> is_open{false};
alignas(64) inline std::atomic<std::int64_t> level_bytes{0};
alignas(64) inline std::atomic<std::int64_t> peak_bytes{0};

inline void add(std::int64_t size) {
  const std::int64_t now = level_bytes.fetch_add(size, std::memory_order_relaxed) + size;
  std::int64_t seen = peak_bytes.load(std::memory_order_relaxed);
  while (now > seen && !peak_bytes.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

inline void* take(void* block) {
  if (block != nullptr && is_open.load(std::memory_order_acquire)) {
    add(static_cast<std::int64_t>(real.usable_size(block)));
  }
  return block;
}

// How many bytes were taken off the level for a block about to be given back.
inline std::int64_t give(void* block) {
  if (block == nullptr || !is_open.load(std::memory_order_acquire)) return 0;
  const auto size = static_cast<std::int64_t>(real.usable_size(block));
  level_bytes.fetch_sub(size, std::memory_order_relaxed);
  return size;
}

// The wrappers allocate nothing, take no lock and keep errno as the real function leaves it.
inline void* counted_malloc(std::size_t size) { return take(real.malloc(size)); }
inline void* counted_calloc(std::size_t count, std::size_t size) { return take(real.calloc(count, size)); }
inline void* counted_memalign(std::size_t alignment, std::size_t size) { return take(real.memalign(alignment, size)); }
inline void* counted_aligned_alloc(std::size_t alignment, std::size_t size) {
  return take(real.aligned_alloc(alignment, size));
}
inline int counted_posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  const int status = real.posix_memalign(result, alignment, size);
  if (status == 0) take(*result);
  return status;
}
inline void counted_free(void* block) {
  give(block);
  real.free(block);
}
inline void* counted_realloc(void* block, std::size_t size) {
  const std::int64_t given = give(block);
  void* const moved = real.realloc(block, size);
  if (moved == nullptr && size != 0) {
    if (given != 0) level_bytes.fetch_add(given, std::memory_order_relaxed);  // the old block lives on
    return nullptr;
  }
  return take(moved);
}

inline std::uintptr_t address_of(auto* function) { return reinterpret_cast<std::uintptr_t>(function); }

// Resolve what any caller would reach, be it libc's or an allocator put in front of it. The reason if it is unusable.
inline std::optional<std::string> resolve() {
  bool is_complete = true;
  const auto look_up = [&](const char* name, auto& function) {
    void* const address = dlsym(RTLD_DEFAULT, name);
    std::memcpy(&function, &address, sizeof address);
    is_complete = is_complete && address != nullptr;
    Dl_info info{};
    return address != nullptr && dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
  };
  void* const owner = look_up("malloc", real.malloc);
  const std::array others = {
      look_up("calloc", real.calloc),
      look_up("realloc", real.realloc),
      look_up("memalign", real.memalign),
      look_up("aligned_alloc", real.aligned_alloc),
      look_up("posix_memalign", real.posix_memalign),
      look_up("free", real.free),
      look_up("malloc_usable_size", real.usable_size),
  };
  if (!is_complete) return "the C library lacks a function of the malloc family";
  if (owner == nullptr || std::any_of(others.begin(), others.end(), [=](void* other) { return other != owner; })) {
    return "the functions of the malloc family come from different libraries";
  }
  // There it may be a stub that jumps through a slot: redirecting that one would never end.
  Dl_info program{};
  const std::uintptr_t headers = getauxval(AT_PHDR);
  if (headers == 0 || dladdr(reinterpret_cast<void*>(headers), &program) == 0) return "the program cannot be located";
  if (program.dli_fbase == owner) return "malloc is part of the program itself, not of a shared library";
  return std::nullopt;
}

}  // namespace counting

// The one window of the process. Its methods may be called from any thread.
class MallocWindow {
 public:
  static MallocWindow& instance() {
    static auto* const window = new MallocWindow;  // never destroyed: a slot may lead to the wrappers until the end
    return *window;
  }

  // Why malloc cannot be counted here; nothing if it can.
  std::optional<std::string> unsupported_reason() const { return reason_; }

  // Open a window at level 0.
  void start() {
    const std::lock_guard held(mutex_);
    if (reason_) throw WindowError(*reason_);
    if (is_running_) throw WindowError("a window is open already: call stop first, windows do not nest");
    if (!slots_->redirect()) throw WindowError("the system refused to let the calls of malloc be redirected");
    is_running_ = true;
    counting::level_bytes.store(0, std::memory_order_relaxed);
    counting::peak_bytes.store(0, std::memory_order_relaxed);
    counting::is_open.store(true, std::memory_order_release);
  }

  // Close it and let all callers reach malloc directly again.
  WindowBytes stop() {
    const std::lock_guard held(mutex_);
    if (!is_running_) throw WindowError("no window is open: call start first");
    counting::is_open.store(false, std::memory_order_release);
    const std::int64_t end_bytes = counting::level_bytes.load();
    // Another thread may have raised the level and be about to raise the peak.
    const std::int64_t peak_bytes = std::max(counting::peak_bytes.load(), end_bytes);
    slots_->restore();
    is_running_ = false;
    return {.peak_bytes = peak_bytes, .end_bytes = end_bytes};
  }

  // How many addresses the last window redirected.
  std::int64_t num_slots() {
    const std::lock_guard held(mutex_);
    return slots_ ? static_cast<std::int64_t>(slots_->num_slots()) : 0;
  }

 private:
  MallocWindow() : reason_(counting::resolve()) {
    if (reason_) return;
    using counting::address_of;
    using counting::real;
    slots_ = std::make_unique<MallocSlots>(
        std::vector<Redirection>{
            {"malloc", address_of(real.malloc), address_of(&counting::counted_malloc)},
            {"calloc", address_of(real.calloc), address_of(&counting::counted_calloc)},
            {"realloc", address_of(real.realloc), address_of(&counting::counted_realloc)},
            {"memalign", address_of(real.memalign), address_of(&counting::counted_memalign)},
            {"aligned_alloc", address_of(real.aligned_alloc), address_of(&counting::counted_aligned_alloc)},
            {"posix_memalign", address_of(real.posix_memalign), address_of(&counting::counted_posix_memalign)},
            {"free", address_of(real.free), address_of(&counting::counted_free)},
        },
        address_of(&counting::counted_free));
  }

  std::mutex mutex_;
  std::optional<std::string> reason_;
  std::unique_ptr<MallocSlots> slots_;
  bool is_running_ = false;
};

#endif

}  // namespace lowtide
