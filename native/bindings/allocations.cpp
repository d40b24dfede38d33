// lowtide._allocations: how many bytes this process takes from malloc while something runs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "lowtide/malloc_window.hpp"

namespace nb = nanobind;

using lowtide::MallocWindow;
using lowtide::WindowBytes;

NB_MODULE(_allocations, module) {
  module.doc() = "Counts the bytes that all threads take from malloc within a window, without LD_PRELOAD.";
  nb::exception<lowtide::WindowError>(module, "WindowError", PyExc_RuntimeError);

  nb::class_<WindowBytes>(module, "WindowBytes")
      .def_ro("peak_bytes", &WindowBytes::peak_bytes)
      .def_ro("end_bytes", &WindowBytes::end_bytes);

  // The GIL is kept: the walk is short, and a thread that imports would change what it walks over.
  module.def("unsupported_reason", [] { return MallocWindow::instance().unsupported_reason(); });
  module.def("start", [] { MallocWindow::instance().start(); });
  module.def("stop", [] { return MallocWindow::instance().stop(); });
  module.def("num_slots", [] { return MallocWindow::instance().num_slots(); });
}
