// lowtide._layout: the native core of the layouters, as flat lists in and out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "lowtide/layout.hpp"
#include "lowtide/layout_fit.hpp"
#include "lowtide/layout_pack.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Int64s = std::vector<std::int64_t>;

std::function<bool()> stop_function(const nb::object& should_stop) {
  return [&should_stop] {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C where nobody else listens
    return !should_stop.is_none() && nb::cast<bool>(should_stop());
  };
}

lowtide::FitOutcome fit(const lowtide::Spans& spans, std::int64_t enough, std::int64_t max_work, std::uint64_t seed,
                        std::optional<double> seconds, nb::object should_stop) {
  lowtide::FitOptions options;
  options.enough = enough;
  options.max_work = max_work;
  options.seed = seed;
  if (seconds) options.seconds = *seconds;
  options.should_stop = stop_function(should_stop);
  nb::gil_scoped_release released;
  return lowtide::LowestFit(spans, std::move(options)).run();
}

lowtide::PackOutcome pack(const lowtide::Spans& spans, std::int64_t capacity, std::int64_t max_nodes,
                          std::uint64_t seed, std::optional<double> seconds, nb::object should_stop) {
  lowtide::PackOptions options;
  options.capacity = capacity;
  options.max_nodes = max_nodes;
  options.seed = seed;
  if (seconds) options.seconds = *seconds;
  options.should_stop = stop_function(should_stop);
  nb::gil_scoped_release released;
  return lowtide::Packer(spans, std::move(options)).run();
}

}  // namespace

NB_MODULE(_layout, module) {
  module.doc() = "Native core of the layouters: lowest fit and exact packing of spans, in units of the alignment.";
  nb::exception<lowtide::LayoutError>(module, "LayoutError", PyExc_ValueError);

  nb::class_<lowtide::Spans>(module, "Spans")
      .def("__init__",
           [](lowtide::Spans* self, const Int64s& start, const Int64s& end, Int64s size) {
             new (self) lowtide::Spans(lowtide::make_spans(start, end, std::move(size)));
           },
           nb::kw_only(), "start"_a, "end"_a, "size"_a)
      .def_ro("peak", &lowtide::Spans::peak)
      .def_prop_ro("num_columns", &lowtide::Spans::num_columns)
      .def_prop_ro("contention", [](const lowtide::Spans& spans) { return lowtide::contention_of(spans); });

  nb::class_<lowtide::FitOutcome>(module, "FitOutcome")
      .def_ro("offsets", &lowtide::FitOutcome::offsets)
      .def_ro("footprint", &lowtide::FitOutcome::footprint)
      .def_ro("num_rounds", &lowtide::FitOutcome::num_rounds)
      .def_ro("work", &lowtide::FitOutcome::work);

  nb::class_<lowtide::PackOutcome>(module, "PackOutcome")
      .def_ro("offsets", &lowtide::PackOutcome::offsets)
      .def_ro("footprint", &lowtide::PackOutcome::footprint)
      .def_ro("num_nodes", &lowtide::PackOutcome::num_nodes)
      .def_prop_ro("is_packed",
                   [](const lowtide::PackOutcome& outcome) { return outcome.answer == lowtide::PackAnswer::kPacked; })
      .def_prop_ro("is_impossible", [](const lowtide::PackOutcome& outcome) {
        return outcome.answer == lowtide::PackAnswer::kImpossible;
      });

  module.def("fit", &fit, "spans"_a, nb::kw_only(), "enough"_a, "max_work"_a, "seed"_a,
             "seconds"_a.none() = nb::none(), "should_stop"_a.none() = nb::none(),
             "Offsets by lowest fit; local search lowers a footprint above `enough`.");
  module.def("pack", &pack, "spans"_a, nb::kw_only(), "capacity"_a, "max_nodes"_a, "seed"_a,
             "seconds"_a.none() = nb::none(), "should_stop"_a.none() = nb::none(),
             "Offsets of a footprint up to `capacity`, a proof that there are none, or neither.");
}
