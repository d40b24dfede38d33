// What Python asks of a budget that is on, or of the last one: figures, the log and the notes that name it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "lowtide/engine_config.hpp"
#include "lowtide/engine_events.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_notes.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_state.hpp"

namespace lowtide::shim {

namespace py = pybind11;

inline Runtime& last_runtime() {
  Shim& all = shim();
  if (all.runtime) return *all.runtime;
  if (all.retired.empty()) throw std::runtime_error("no budget has been on");
  return *all.retired.back();
}

inline py::dict stats() {
  const Lock lock(shim_mutex());
  Runtime& runtime = last_runtime();
  const online::EngineStats& engine = runtime.engine().stats();
  const ShimStats& own = runtime.stats();
  py::dict all;
  all["capacity"] = runtime.engine().config().capacity;
  all["resident_bytes"] = engine.resident_bytes;
  all["peak_bytes"] = engine.peak_bytes;
  all["high_water"] = runtime.engine().memory().high_water();
  all["num_calls"] = engine.num_calls;
  all["num_recomputes"] = engine.num_recomputes;
  all["num_evictions"] = engine.num_evictions;
  all["bytes_evicted"] = engine.bytes_evicted;
  all["num_searches"] = engine.num_searches;
  all["search_seconds"] = engine.search_seconds;
  all["fragmentation_sum"] = engine.fragmentation_sum;
  all["num_compactions"] = engine.num_compactions;
  all["bytes_moved"] = engine.bytes_moved;
  all["num_frozen"] = engine.num_frozen;
  all["base_cost"] = engine.base_cost;
  all["recompute_cost"] = engine.recompute_cost;
  all["num_cells"] = runtime.engine().tape().num_cells();
  all["num_records"] = runtime.engine().tape().num_records();
  all["num_tracked"] = own.num_tracked;
  all["num_passed"] = own.num_passed;
  all["num_unreplayable"] = own.num_unreplayable;
  all["num_retries"] = own.num_retries;
  all["num_externals"] = own.num_externals;
  all["num_foreign"] = own.num_foreign;
  all["bytes_foreign"] = own.bytes_foreign;
  all["num_survivors"] = own.num_survivors;
  all["num_restored"] = own.num_restored;
  all["num_lost"] = own.num_lost;
  all["recompute_seconds"] = own.recompute_seconds;
  all["wait_seconds"] = own.wait_seconds;
  all["peak_demand_bytes"] = engine.peak_demand_bytes;
  all["has_thrashed"] = own.has_thrashed;
  all["num_kept_arenas"] = shim().graveyard.num_arenas();
  all["kept_arena_bytes"] = shim().graveyard.bytes();
  return all;
}

// What the log's numbers stand for: (op, inputs, outputs, overwritten, sizes, tempers, cost, flags) by call.
inline py::list notes() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const Note& note : last_runtime().notes().all()) {
    all.append(py::make_tuple(note.op == nullptr ? std::string() : note.op->name, note.inputs, note.outputs,
                              note.overwritten, note.sizes, note.tempers, note.cost, note.flags));
  }
  return all;
}

// (address of the storage, bytes, op) of all that could not be evicted when memory ran out last.
inline py::list unevictable() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const Holding& holding : last_runtime().holdings()) {
    all.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(holding.storage), holding.size, holding.op));
  }
  return all;
}

inline py::list events() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const online::Event& event : shim().events) {
    all.append(py::make_tuple(online::name_of(event.kind), event.id, event.offset, event.size));
  }
  return all;
}

}  // namespace lowtide::shim
