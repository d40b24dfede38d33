// What reads bytes before the hook sees them, and what takes its place while a budget is on.
//
//   keys   Autograd: shield, for composites   ▶   Sparse ... Mkldnn: wrap   ▶   the hook   ▶   CPU
//
// Only while a budget is on: a kernel at an autograd key changes what torch's tracers see.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <optional>
#include <unordered_map>

#include "torch_shim_hook.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_schema.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

// The kernels of a key that comes before the hook's, by operator.
template <c10::DispatchKey key>
std::unordered_map<const void*, c10::SafeKernelFunction>& kernels_before() {
  static auto* kernels = new std::unordered_map<const void*, c10::SafeKernelFunction>;
  return *kernels;
}

// In the place of one of them, while a budget is on.
template <c10::DispatchKey key>
void wrap(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::SafeKernelFunction& kernel = kernels_before<key>().at(&op.schema());
  const bool is_below = c10::impl::tls_is_dispatch_key_excluded(kHookKey);  // in another kernel
  if (is_below || !c10::impl::tls_is_dispatch_key_included(kHookKey)) return kernel.callBoxed(op, keys, stack);
  UniqueLock lock(shim_mutex());
  Runtime* runtime = shim().runtime.get();
  if (!is_on || runtime == nullptr) {
    lock.unlock();
    return kernel.callBoxed(op, keys, stack);
  }
  const OpInfo& info = runtime->ops().of(op);
  if (inside() == nullptr || is_in_foreign_kernel) return run_guest(*runtime, info, op, keys, *stack, lock, &kernel);
  run_tracked(*runtime, info, keys, *stack, lock, false, &kernel);
  clear_up(*runtime, lock);
}

template <c10::DispatchKey key>
void wrap_kernel(c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(key) || op.isKernelFallthroughKernel(key)) return;
  kernels_before<key>().erase(&op.schema());
  kernels_before<key>().emplace(&op.schema(), op.getComputedKernelForDispatchKey(key));
  shim().shields.push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromBoxedFunction<&wrap<key>>(), std::nullopt, nullptr,
      "lowtide"));
}

inline void wrap_kernels() {
  class Silent final : public c10::WarningHandler {  // torch warns of every kernel that takes another's place
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema()) continue;
    wrap_kernel<c10::DispatchKey::SparseCPU>(*op);
    wrap_kernel<c10::DispatchKey::SparseCsrCPU>(*op);
    wrap_kernel<c10::DispatchKey::NestedTensorCPU>(*op);
    wrap_kernel<c10::DispatchKey::MkldnnCPU>(*op);
  }
}

// For composites that read bytes themselves, above autograd: their inputs are resident and locked while they run.
inline void shield(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  Runtime* runtime = inside();
  if (runtime == nullptr) return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  UniqueLock lock(shim_mutex());
  run_tracked(*runtime, runtime->ops().of(op), keys, *stack, lock, true);
}

inline void raise_shields() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, overload] : detail::kShielded) {
    const auto op = dispatcher.findSchema({name, overload});
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU)) continue;
    shim().shields.push_back(dispatcher.registerImpl(op->operator_name(), c10::DispatchKey::AutogradCPU,
                                                     c10::KernelFunction::makeFromBoxedFunction<&shield>(),
                                                     std::nullopt, nullptr, "lowtide"));
  }
}

}  // namespace lowtide::shim
