// What Python asks for one tensor: that it is there, stays there, or goes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "lowtide/engine_errors.hpp"
#include "torch_shim_callbacks.hpp"
#include "torch_shim_errors.hpp"
#include "torch_shim_guest.hpp"
#include "torch_shim_handle.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_signals.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

// The handle of a tensor's storage in the budget that is on; null where it has none or needs none.
inline Handle* handle_of_tensor(const at::Tensor& tensor) {
  Shim& all = shim();
  if (!all.runtime || !tensor.defined()) return nullptr;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage()) return nullptr;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (Handle* handle = all.runtime->handle_of(storage)) return handle;
  return all.runtime->raw_of(storage) == nullptr ? nullptr : all.runtime->handle_for(storage);
}

// False: Python has to run first.
template <typename Action>
bool try_to_act_on(const at::Tensor& tensor, Action action) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr) return true;
  Runtime& runtime = *shim().runtime;
  static const char* kWhere = "a read from Python";
  try {
    const Visit visit(runtime);
    const Runtime::Waiting waiting(runtime);
    runtime.limit_recompute();
    if constexpr (std::is_invocable_v<Action, Handle*>) {
      action(handle);
    } else {
      action(runtime.engine(), handle->cell);
    }
    return true;
  } catch (const Interrupted&) {
    return false;
  } catch (const online::OutOfMemory& error) {
    throw OutOfMemoryError(describe(error, kWhere));
  } catch (const online::Thrashing& error) {
    throw OutOfMemoryError(describe(error, kWhere, runtime.engine().config().capacity));
  }
}

template <typename Action>
void act_on(const at::Tensor& tensor, Action action) {
  ++num_escapes;
  const pybind11::gil_scoped_release no_gil;
  while (!try_to_act_on(tensor, action)) let_python_run();
}

inline void pin(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) { engine.pin(cell); });
}

inline void unpin(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) {
    if (engine.cell(cell).pins > 0) engine.unpin(cell);
  });
}

// As pin, for good: its bytes may be written past the dispatcher.
inline void expose_tensor(const at::Tensor& tensor) {
  act_on(tensor, [](Handle* handle) { expose(*handle->runtime, handle); });
  const Lock lock(shim_mutex());
  if (!shim().runtime || !tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) return;
  Handle* handle = shim().runtime->known(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  if (handle == nullptr || handle->external == nullptr || handle->is_shared) return;
  handle->is_shared = true;  // memory from outside, unwatched so far: from now on it is compared with what is there
  Runtime::remember(handle);
}

inline void materialize(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) { engine.materialize(cell); });
}

// Evict by hand: for tests. Whether it could be.
inline bool evict(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr || !shim().runtime->engine().may_evict(handle->cell)) return false;
  shim().runtime->engine().evict(handle->cell);
  return true;
}

inline std::optional<std::int64_t> cell_of(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr) return std::nullopt;
  return handle->cell;
}

inline bool is_resident(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  return handle == nullptr || shim().runtime->engine().cell(handle->cell).is_resident();
}

}  // namespace lowtide::shim
