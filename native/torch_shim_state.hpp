// What the shim holds for the whole process: the budget that is on, those that are over, and what it has registered.
#pragma once

#include <Python.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lowtide/engine_events.hpp"
#include "torch_shim_arena.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_signals.hpp"

namespace lowtide::shim {

// What is on. Leaked on purpose: tensors may die after every static.
struct Shim {
  c10::Allocator* outside = nullptr;    // the allocator that was there before
  std::unique_ptr<Runtime> runtime;     // of the budget that is on
  Graveyard graveyard;
  std::vector<std::unique_ptr<Runtime>> retired;  // budgets that are over; a few bytes each
  std::vector<online::Event> events;
  Interrupts interrupts;
  PyObject* listener = nullptr;         // touched with the GIL
  PyObject* alarm = nullptr;            // likewise
  std::vector<c10::RegistrationHandleRAII> registrations;
  std::vector<c10::RegistrationHandleRAII> shields;
  std::size_t num_registered_ops = 0;
};

inline Shim& shim() {
  static auto* instance = new Shim;
  return *instance;
}

}  // namespace lowtide::shim
