// Putting allocator and hook into torch, once for good.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKey.h>

#include <optional>
#include <vector>

#include "torch_shim_allocator.hpp"
#include "torch_shim_hook.hpp"
#include "torch_shim_schema.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

// Kernels for the Composite* keys win over a fallback: those ops get the hook one by one.
inline bool hides_from_fallback(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  if (!op.hasSchema() || op.hasKernelForDispatchKey(kHookKey)) return false;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd)) return true;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional)) return true;
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         op.hasKernelForDispatchKey(DispatchKey::CPU);
}

// Views and the like: the dispatcher skips the hook for them, as if it were not there. Only calls are spared that way:
// kernels at BackendSelect choose the next kernel themselves.
inline bool is_passed(const c10::OperatorHandle& op) {
  return op.hasSchema() && !op.hasKernelForDispatchKey(kHookKey) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect) && read_schema(op).mode == Mode::kPass;
}

inline void register_hooks() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  Shim& all = shim();
  const std::vector<c10::OperatorName> names = dispatcher.getAllOpNames();
  if (names.size() == all.num_registered_ops) return;
  if (all.num_registered_ops == 0) {
    all.registrations.push_back(
        dispatcher.registerFallback(kHookKey, c10::KernelFunction::makeFromBoxedFunction<&hook>(), "lowtide"));
  }
  for (const c10::OperatorName& name : names) {
    const auto op = dispatcher.findOp(name);
    if (op && is_passed(*op)) {
      all.registrations.push_back(dispatcher.registerImpl(name, kHookKey, c10::KernelFunction::makeFallthrough(),
                                                          std::nullopt, nullptr, "lowtide"));
      continue;
    }
    if (!op || !hides_from_fallback(*op)) continue;
    all.registrations.push_back(dispatcher.registerImpl(name, kHookKey,
                                                        c10::KernelFunction::makeFromBoxedFunction<&hook>(),
                                                        std::nullopt, nullptr, "lowtide"));
  }
  all.num_registered_ops = names.size();
}

// Again and again, cheaply: operators may have come since.
inline void install() {
  Shim& all = shim();
  if (all.outside == nullptr) {
    all.outside = c10::GetAllocator(c10::kCPU);
    c10::SetAllocator(c10::kCPU, new ArenaAllocator, 255);
  }
  register_hooks();
}

}  // namespace lowtide::shim
