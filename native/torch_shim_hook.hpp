// The boxed kernel that every operator of a budget's threads comes through, and what happens there.
//
//   hook ─▶ pass: a view, or nothing to see to
//        ─▶ run_tracked ─▶ begin ─▶ execute, without the lock ─▶ end ─▶ clear_up       no room: make way, execute again
//        ─▶ hook_of_guest ─▶ run_guest: a thread that has not entered, or the kernel of a foreign op
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/utils/pybind.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "lowtide/engine_errors.hpp"
#include "torch_shim_call.hpp"
#include "torch_shim_callbacks.hpp"
#include "torch_shim_errors.hpp"
#include "torch_shim_guest.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_replay.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_signals.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

[[noreturn]] inline void throw_translated(Runtime& runtime, const OpInfo& info) {
  try {
    throw;
  } catch (const online::OutOfMemory& error) {
    if (runtime.holdings().empty()) runtime.note_holdings();
    throw OutOfMemoryError(describe(error, info.name));
  } catch (const online::Thrashing& error) {
    runtime.note_holdings();
    throw OutOfMemoryError(describe(error, info.name, runtime.engine().config().capacity));
  }
}

// False: Python has to run first, and nothing has happened.
inline bool begin(Runtime& runtime, const OpInfo& info, Call& call) {
  try {
    const Runtime::Waiting waiting(runtime);
    runtime.forget_holdings();
    call.begin();
    return true;
  } catch (const Interrupted&) {
    return false;
  } catch (...) {
    throw_translated(runtime, info);
  }
}

inline bool try_tracked(Runtime& runtime, const OpInfo& info, c10::DispatchKeySet below, Stack& stack, UniqueLock& lock,
                        bool is_shield, const c10::SafeKernelFunction* kernel) {
  Call call(runtime, info, below, stack, kernel);
  if (!begin(runtime, info, call)) return false;
  const auto execute = [&] {
    lock.unlock();
    try {
      is_shield ? call.execute_shielded() : call.execute();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  };
  try {
    for (bool is_done = false; !is_done;) {
      try {
        execute();
        is_done = true;
      } catch (const OutOfMemoryError&) {
        if (is_shield || !call.make_way()) throw;
      }
    }
  } catch (...) {
    call.abort();
    throw;
  }
  call.end();
  return true;
}

inline void run_tracked(Runtime& runtime, const OpInfo& info, c10::DispatchKeySet below, Stack& stack, UniqueLock& lock,
                        bool is_shield = false, const c10::SafeKernelFunction* kernel = nullptr) {
  while (!try_tracked(runtime, info, below, stack, lock, is_shield, kernel)) {
    lock.unlock();
    let_python_run();
    lock.lock();
    if (inside() != &runtime) throw std::runtime_error("lowtide: a signal's handler has left the budget within an op");
  }
}

inline void run_guest(Runtime& runtime, const OpInfo& info, const c10::OperatorHandle& op, c10::DispatchKeySet below,
                      Stack& stack, UniqueLock& lock, const c10::SafeKernelFunction* kernel = nullptr) {
  GuestCall call(runtime, info, stack);
  try {
    const Visit visit(runtime);
    call.begin();
  } catch (...) {
    throw_translated(runtime, info);
  }
  lock.unlock();
  try {
    const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
    kernel == nullptr ? op.redispatchBoxed(below, &stack) : kernel->callBoxed(op, below, &stack);
  } catch (...) {
    lock.lock();
    call.end();
    throw;
  }
  lock.lock();
  call.end();
}

// In a thread that has not entered the budget, or in the kernel of a foreign op.
inline void hook_of_guest(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
  UniqueLock lock(shim_mutex());
  Runtime* runtime = shim().runtime.get();
  if (!is_on || runtime == nullptr) {  // the budget is over
    lock.unlock();
    c10::impl::tls_set_dispatch_key_included(kHookKey, false);
    return op.redispatchBoxed(below, stack);
  }
  const OpInfo& info = runtime->ops().of(op);
  if (info.mode != Mode::kPass) return run_guest(*runtime, info, op, below, *stack, lock);
  lock.unlock();
  const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
  op.redispatchBoxed(below, stack);
}

// After an op: what must not happen under the lock.
inline void clear_up(Runtime& runtime, UniqueLock& lock) {
  runtime.sweep_externals();
  const auto dropped = runtime.take_dropped();
  const auto told = runtime.has_told() ? runtime.take_told() : std::vector<Told>();
  const bool is_alarming = runtime.has_begun_to_thrash();
  lock.unlock();
  if (!told.empty()) tell(told);
  if (is_alarming) sound_alarm();
}

inline void hook(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kHookKey);
  Runtime* runtime = inside();
  if (runtime == nullptr || is_in_foreign_kernel) return hook_of_guest(op, below, stack);
  if (Interrupts::is_pending()) Interrupts::handle_now();
  UniqueLock lock(shim_mutex());
  const OpInfo& info = runtime->ops().of(op);
  if (info.mode == Mode::kPass) {
    ++runtime->stats().num_passed;
    lock.unlock();
    const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
    return op.redispatchBoxed(below, stack);
  }
  run_tracked(*runtime, info, below, *stack, lock);
  clear_up(*runtime, lock);
}

}  // namespace lowtide::shim
