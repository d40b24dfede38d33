// Which thread is in the budget, and how the others come to see the hook.
#pragma once

#include <Python.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "torch_shim_runtime.hpp"

namespace lowtide::shim {

inline constexpr c10::DispatchKey kHookKey = c10::DispatchKey::CustomRNGKeyId;

inline std::atomic<bool> is_on{false};
inline std::atomic<std::uint64_t> epoch{0};  // changes whenever a budget is entered or left

// What a thread is inside of; of no meaning once the epoch is another, as the block may be left by another thread.
struct Membership {
  Runtime* runtime = nullptr;
  std::uint64_t since = 0;
};
inline thread_local Membership membership;

inline Runtime* inside() {
  return membership.runtime != nullptr && membership.since == epoch.load(std::memory_order_relaxed)
             ? membership.runtime
             : nullptr;
}

// With the lock held: what this thread allocates for recomputations lies in the arena, too.
class Visit {
 public:
  explicit Visit(Runtime& runtime) : before_(std::exchange(membership, {&runtime, epoch.load()})) {}
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() { membership = before_; }

 private:
  Membership before_;
};

// This thread is in the kernel of a foreign op: the ops that it calls are a guest's.
inline thread_local bool is_in_foreign_kernel = false;

class ForeignKernel {
 public:
  ForeignKernel() : before_(std::exchange(is_in_foreign_kernel, true)) {}
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;
  ~ForeignKernel() { is_in_foreign_kernel = before_; }

 private:
  bool before_;
};

// How often this thread has asked for bytes past the dispatcher. A kernel that does so is no function of its arguments:
// whoever has the address may read and write through it at any time.
inline thread_local std::uint64_t num_escapes = 0;

// This thread's ops go through the hook from now on.
inline void join_thread() {
  if (is_on.load() && !c10::impl::tls_is_dispatch_key_included(kHookKey)) {
    c10::impl::tls_set_dispatch_key_included(kHookKey, true);
  }
}

namespace detail {

inline int join_at_first_event(PyObject*, PyFrameObject*, int, PyObject*) {
  PyEval_SetProfile(nullptr, nullptr);
  join_thread();
  return 0;
}

}  // namespace detail

// Let every other Python thread join before the next function it calls or returns from; a profile function is the only
// way to have a running thread do something. Threads that are being profiled are left alone. With the GIL.
inline void join_other_threads() {
  PyThreadState* own = PyThreadState_Get();
#if PY_VERSION_HEX < 0x030C0000
  for (PyThreadState* other = PyInterpreterState_ThreadHead(own->interp); other != nullptr;
       other = PyThreadState_Next(other)) {
    if (other == own || other->c_profilefunc != nullptr) continue;
    _PyEval_SetProfile(other, &detail::join_at_first_event, nullptr);
  }
#else
  bool is_alone = true;
  for (PyThreadState* other = PyInterpreterState_ThreadHead(own->interp); other != nullptr;
       other = PyThreadState_Next(other)) {
    if (other->c_profilefunc != nullptr) return;
    is_alone &= other == own;
  }
  if (is_alone) return;
  PyEval_SetProfileAllThreads(&detail::join_at_first_event, nullptr);
  PyEval_SetProfile(nullptr, nullptr);
#endif
}

}  // namespace lowtide::shim
