// Memory: the allocator that torch asks, and the deleters of what came from an arena.
//
//   thread in the budget ──▶ its arena          all others ──▶ the allocator that was there before
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "torch_shim_mutex.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

// Torch's allocator for the CPU from the first budget on.
class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (Runtime* runtime = inside()) {
      const Lock lock(shim_mutex());
      return runtime->allocate(size);
    }
    if (is_on.load(std::memory_order_relaxed)) count_foreign(size);
    return shim().outside->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

 private:
  static void count_foreign(std::size_t size) {
    const Lock lock(shim_mutex());
    if (!shim().runtime) return;
    ++shim().runtime->stats().num_foreign;
    shim().runtime->stats().bytes_foreign += static_cast<std::int64_t>(size);
  }
};

inline void release_raw(void* pointer) {
  if (pointer == nullptr) return;
  Shim& all = shim();
  {
    const Lock lock(shim_mutex());
    if (all.runtime && all.runtime->contains(pointer)) return all.runtime->free_raw(pointer);
    if (all.graveyard.release(pointer)) return;
  }
  if (const c10::DeleterFnPtr deleter = all.outside->raw_deleter()) deleter(pointer);
}

inline void release_handle(void* context) {
  const Lock lock(shim_mutex());
  auto* handle = static_cast<Handle*>(context);
  handle->runtime->storage_gone(handle);
}

}  // namespace lowtide::shim
