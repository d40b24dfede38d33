// Running a recorded operator again: over the bytes that its cells have now, in the state that its thread had then.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "torch_shim_recipe.hpp"
#include "torch_shim_runtime.hpp"

namespace lowtide::shim {

namespace detail {

// The storage of a returned tensor that is not among the inputs.
inline c10::StorageImpl* returned_storage(const Stack& stack, std::size_t num_returns, const Place& place) {
  const at::IValue& value = stack[stack.size() - num_returns + static_cast<std::size_t>(place.index)];
  const at::IValue& single = place.element < 0 ? value : value.toListRef()[static_cast<std::size_t>(place.element)];
  return single.toTensor().unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace detail

inline void Runtime::replay(RecordId record, std::vector<Spot>& spots) {
  const Clock::time_point started = Clock::now();
  if (is_waiting_ && (Interrupts::is_pending() || is_warning_due(started))) throw Interrupted();
  const Recipe& recipe = *recipes_[record];
  const std::vector<std::int64_t> sizes = engine_.tape().record(record).sizes;
  if (is_listened_) told_.push_back({"recompute", kNone, 0, recipe.info});
  const OpInfo* outer = std::exchange(running_, recipe.info);
  const Temper outer_temper = std::exchange(temper_, static_cast<Temper>(engine_.tape().record(record).temper));
  if (is_waiting_ && !wait_began_) wait_began_ = started;
  const bool was_replaying = std::exchange(is_replaying_, true);
  if (std::exchange(failed_replay_, kNone) == record) temper_ = kTightest;
  replay_raw_before_ = raw_bytes_;
  shortage_ = 0;
  const auto restore_running = [&] {
    is_replaying_ = was_replaying;
    running_ = outer;
    temper_ = outer_temper;
    stats_.recompute_seconds += seconds_between(started, Clock::now());
  };
  try {
    std::vector<void*> data;
    data.reserve(recipe.uses.size());
    for (const Recipe::UsedCell& use : recipe.uses) {
      if (use.output < 0) {
        check_unchanged(use.cell);
        data.push_back(data_of(use.cell));
        continue;
      }
      Spot& spot = spots[static_cast<std::size_t>(use.output)];
      if (spot.home == Home::kAbsent) spot = engine_.allocate(sizes[static_cast<std::size_t>(use.output)], temper_);
      data.push_back(arena_.at(spot.offset));
    }
    Stack stack = recipe.make_stack(data);
    {
      const c10::impl::ForceDispatchKeyGuard keys(recipe.thread_keys);
      const c10::AutoGradMode grad_mode(recipe.is_grad_enabled);
      const ReplayedNumerics numerics(recipe.numerics);
      std::optional<ReplayedRandomness> randomness;
      if (recipe.random) {
        randomness.emplace(*recipe.random, generator_of(recipe.arguments.data(), recipe.arguments.size()));
      }
      recipe.info->handle.redispatchBoxed(recipe.keys, &stack);
    }
    for (std::size_t index = 0; index < recipe.places.size(); ++index) {
      const Place& place = recipe.places[index];
      if (place.kind != Place::Kind::kReturn) continue;
      c10::StorageImpl* storage = detail::returned_storage(stack, recipe.info->num_returns, place);
      const Raw* raw = raw_of(storage);
      if (raw == nullptr || (sizes[index] != 0 && raw->size != sizes[index])) {
        throw std::logic_error("lowtide: " + recipe.info->name + " gave other memory when it was run again");
      }
      spots[index] = take_raw(raw).spot;
      c10::DataPtr& pointer = storage->_mutable_data_ptr_no_checks();
      pointer.release_context();
      pointer = c10::DataPtr(nullptr, c10::Device(c10::kCPU));
    }
  } catch (...) {
    failed_replay_ = record;
    restore_running();
    throw;
  }
  restore_running();
}

}  // namespace lowtide::shim
