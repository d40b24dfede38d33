// The torch shim: unmodified eager PyTorch inside an arena of a given size. The only file (with its torch_shim_*.hpp)
// that sees torch; compiled at first use, see src/lowtide/runtime/build.py.
//
//   allocations   c10::SetAllocator(kCPU): memory of the thread that entered comes from the arena
//   operators     a boxed kernel on CustomRNGKeyId, below autograd and above the CPU kernels, on by TLS include; what
//                 comes before it (sparse, nested) is wrapped while a budget is on
//   evictions     a storage's DataPtr is swapped for a null one; views, saved tensors and Python see the same storage
//
// Here a budget is entered and left, and Python gets its functions. torch_shim_allocator.hpp, _hook.hpp, _wrap.hpp and
// _registration.hpp are what torch calls; _report.hpp and _tensors.hpp what Python asks.
//
// How each of these was found to work on torch 2.13: docs/decisions/operator-hook.md.
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine_config.hpp"
#include "torch_shim_closing.hpp"
#include "torch_shim_errors.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_options.hpp"
#include "torch_shim_registration.hpp"
#include "torch_shim_report.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_state.hpp"
#include "torch_shim_tensors.hpp"
#include "torch_shim_threads.hpp"
#include "torch_shim_wrap.hpp"

namespace lowtide::shim {
namespace {

void enter(const py::dict& given) {
  install();
  Options options(given);
  const online::EngineConfig config = read_config(options);
  const double thrash_limit = options.take("thrash_limit", 20.0);
  const bool has_events = options.take("has_events", false);
  const bool is_main_thread = options.take("is_main_thread", false);
  options.finish();
  if (OutOfMemoryError::type == nullptr) {
    OutOfMemoryError::type =
        py::object(py::module_::import("lowtide.runtime.errors").attr("LowtideOutOfMemory")).release().ptr();
  }
  RefusedError::type = py::object(py::module_::import("lowtide.errors").attr("InputError")).release().ptr();
  const Lock lock(shim_mutex());
  Shim& all = shim();
  if (all.runtime) throw std::runtime_error("a budget is on already: leave it before entering another");
  all.runtime = std::make_unique<Runtime>(config, thrash_limit, all.outside);
  all.events.clear();
  if (has_events) {
    all.runtime->engine().set_log(&all.events);
    all.runtime->keep_notes();
  }
  membership = {all.runtime.get(), ++epoch};
  is_on = true;
  raise_shields();
  wrap_kernels();
  if (is_main_thread) all.interrupts.install();
  c10::impl::tls_set_dispatch_key_included(kHookKey, true);
}

void leave() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> dropped;
  const Lock lock(shim_mutex());
  Shim& all = shim();
  if (!all.runtime) throw std::runtime_error("no budget is on");
  all.runtime->stop_notes();
  all.runtime->listen(false);
  Py_CLEAR(all.listener);
  Py_CLEAR(all.alarm);
  all.interrupts.uninstall();
  c10::impl::tls_set_dispatch_key_included(kHookKey, false);
  std::int64_t num_pointers = 0;
  {
    const Visit visit(*all.runtime);  // this may be another thread than the one that entered
    num_pointers = all.runtime->close();
  }
  membership = {};
  ++epoch;
  is_on = false;
  all.shields.clear();
  dropped = all.runtime->take_dropped();
  all.graveyard.keep(all.runtime->take_arena(), num_pointers);
  all.retired.clear();  // the last one is kept for its statistics
  all.retired.push_back(std::move(all.runtime));
}

// Called now and then with a list of (kind, cell, bytes, op); None: nobody is.
void set_listener(const py::object& callback) {
  const Lock lock(shim_mutex());
  if (!shim().runtime) throw std::runtime_error("no budget is on");
  Py_XDECREF(shim().listener);
  shim().listener = callback.is_none() ? nullptr : py::object(callback).release().ptr();
  shim().runtime->listen(shim().listener != nullptr);
}

// Called once, soon after ops have begun to wait for recomputations for longer than all else takes; None: nobody is.
void set_alarm(const py::object& callback) {
  const Lock lock(shim_mutex());
  if (!shim().runtime) throw std::runtime_error("no budget is on");
  Py_XDECREF(shim().alarm);
  shim().alarm = callback.is_none() ? nullptr : py::object(callback).release().ptr();
}

// Around a fork: nobody else may be in the middle of a change then.
void lock_for_fork() { shim_mutex().lock(); }
void unlock_after_fork() { shim_mutex().unlock(); }

// In a forked child: it has a copy of its parent's arena, from which it reads as a guest; what it makes lies outside.
void abandon() {
  new (&shim_mutex()) RecursiveMutex;  // held by a thread with another number
  membership = {};
}

}  // namespace
}  // namespace lowtide::shim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace lowtide::shim;
  module.doc() = "PyTorch inside an arena: allocator, operator hook, evictions and replays. See lowtide.runtime.";
  module.def("enter", torch::wrap_pybind_function(&enter), pybind11::arg("config"));
  module.def("leave", torch::wrap_pybind_function(&leave));
  module.def("stats", &stats);
  module.def("events", &events);
  module.def("notes", &notes);
  module.def("unevictable", &unevictable);
  module.def("set_listener", &set_listener, pybind11::arg("callback"));
  module.def("set_alarm", &set_alarm, pybind11::arg("callback"));
  module.def("pin", torch::wrap_pybind_function(&pin), pybind11::arg("tensor"));
  module.def("unpin", torch::wrap_pybind_function(&unpin), pybind11::arg("tensor"));
  module.def("expose", torch::wrap_pybind_function(&expose_tensor), pybind11::arg("tensor"));
  module.def("abandon", &abandon);
  module.def("lock_for_fork", &lock_for_fork);
  module.def("unlock_after_fork", &unlock_after_fork);
  module.def("join_thread", &join_thread);
  module.def("join_other_threads", &join_other_threads);
  module.def("materialize", torch::wrap_pybind_function(&materialize), pybind11::arg("tensor"));
  module.def("evict", &evict, pybind11::arg("tensor"));
  module.def("cell_of", &cell_of, pybind11::arg("tensor"));
  module.def("is_resident", &is_resident, pybind11::arg("tensor"));
  module.def("is_active", [] { return is_on.load(); });
  module.def("version", [] { return std::string("1"); });
}
