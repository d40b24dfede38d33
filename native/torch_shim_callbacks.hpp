// What Python is told: evictions, recomputations and moves, and once that the budget thrashes. All of it without the
// shim's lock: whoever has the GIL may be waiting for it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

#include "torch_shim_mutex.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_signals.hpp"
#include "torch_shim_state.hpp"

namespace lowtide::shim {

// What a callback raises is shown and dropped, but a Ctrl-C that comes while it runs is kept for the program.
template <typename... Arguments>
void call_back(PyObject* callback, const char* name, const Arguments&... arguments) {
  try {
    pybind11::reinterpret_borrow<pybind11::object>(callback)(arguments...);
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) return PyErr_SetInterrupt();
    error.discard_as_unraisable(name);
  }
}

inline void tell(const std::vector<Told>& told) {
  const pybind11::gil_scoped_acquire gil;
  if (shim().listener == nullptr) return;
  pybind11::list all;
  for (const Told& one : told) {
    all.append(pybind11::make_tuple(one.kind, one.cell, one.size, one.op == nullptr ? std::string() : one.op->name));
  }
  call_back(shim().listener, "lowtide's on_event", all);
}

inline void sound_alarm() {
  const pybind11::gil_scoped_acquire gil;
  if (shim().alarm != nullptr) call_back(shim().alarm, "lowtide's warning");
}

// After Interrupted: a signal's handlers run, and a warning that is due is given. Throws what a handler raises.
inline void let_python_run() {
  Interrupts::handle_now();
  bool is_alarming = false;
  {
    const Lock lock(shim_mutex());
    is_alarming = shim().runtime && shim().runtime->has_begun_to_thrash();
  }
  if (is_alarming) sound_alarm();
}

}  // namespace lowtide::shim
