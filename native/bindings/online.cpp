// lowtide._online: the online engine behind a simulator, as flat lists in and out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "lowtide/simulate.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace lowtide::online;
namespace pool = lowtide::pool;

namespace {

using Bytes = std::vector<std::uint8_t>;
using Int32s = std::vector<std::int32_t>;
using Int64s = std::vector<std::int64_t>;

constexpr double kFreeWorth = -2.0;
constexpr double kMovableWorth = -3.0;

struct ProgramError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

void check_range(const Int32s& all, std::int32_t least, std::int32_t end, const char* what) {
  for (const std::int32_t value : all) {
    if (value < least || value >= end) {
      throw ProgramError(std::string(what) + " " + std::to_string(value) + " is outside " + std::to_string(least) +
                         " to " + std::to_string(end - 1));
    }
  }
}

Program make_program(const Bytes& kinds, const Bytes& flags, const Bytes& tempers, const std::vector<double>& costs,
                     const Int64s& workspaces, const Int32s& input_starts, Int32s inputs, const Int32s& output_starts,
                     Int32s outputs, Int64s output_sizes, Int32s output_overwrites, Bytes output_tempers,
                     std::int32_t num_variables) {
  const std::size_t count = kinds.size();
  if (flags.size() != count || tempers.size() != count || costs.size() != count || workspaces.size() != count ||
      input_starts.size() != count + 1 || output_starts.size() != count + 1 ||
      static_cast<std::size_t>(input_starts.back()) != inputs.size() ||
      static_cast<std::size_t>(output_starts.back()) != outputs.size() || output_sizes.size() != outputs.size() ||
      output_overwrites.size() != outputs.size() || output_tempers.size() != outputs.size()) {
    throw ProgramError("the columns of the program differ in length");
  }
  check_range(inputs, 0, num_variables, "input");
  check_range(outputs, 0, num_variables, "output");
  check_range(output_overwrites, kNone, num_variables, "overwritten variable");
  Program program;
  for (std::size_t index = 0; index < count; ++index) {
    if (kinds[index] > 2 || tempers[index] > 2) throw ProgramError("no such kind or temper");
    Instruction instruction;
    instruction.kind = static_cast<Instruction::Kind>(kinds[index]);
    instruction.is_backward = (flags[index] & 1) != 0;
    instruction.is_replayable = (flags[index] & 2) != 0;
    instruction.is_external = (flags[index] & 4) != 0;
    instruction.temper = static_cast<Temper>(tempers[index]);
    instruction.cost = costs[index];
    instruction.workspace = workspaces[index];
    instruction.first_input = input_starts[index];
    instruction.num_inputs = input_starts[index + 1] - input_starts[index];
    instruction.first_output = output_starts[index];
    instruction.num_outputs = output_starts[index + 1] - output_starts[index];
    if (instruction.num_inputs < 0 || instruction.num_outputs < 0) throw ProgramError("starts must not fall");
    program.instructions.push_back(instruction);
  }
  for (const std::uint8_t temper : output_tempers) {
    if (temper > 2) throw ProgramError("no such temper");
  }
  program.inputs = std::move(inputs);
  program.outputs = std::move(outputs);
  program.output_sizes = std::move(output_sizes);
  program.output_overwrites = std::move(output_overwrites);
  program.output_tempers = std::move(output_tempers);
  program.num_variables = num_variables;
  return program;
}

// offset, size, cell (or -1), whether it may be evicted
using BlockRow = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;

std::vector<BlockRow> block_rows(Simulation& simulation, bool may_take_backward) {
  std::vector<BlockRow> rows;
  const pool::Pool& memory = simulation.engine().memory();
  for (pool::BlockId id = memory.first(); id != pool::kNone; id = memory[id].next) {
    const pool::Block& block = memory[id];
    bool may_evict = false;
    if (block.owner >= 0 && block.owner < kRaw && block.pins == 0) {
      const auto cell = static_cast<CellId>(block.owner);
      may_evict = simulation.engine().may_evict(cell) &&
                  (may_take_backward || !simulation.engine().cell(cell).backward);
    }
    rows.emplace_back(block.offset, block.size, block.owner >= kRaw ? -2 : block.owner, may_evict);
  }
  return rows;
}

void set_chooser(Simulation& simulation, nb::object chooser) {
  if (chooser.is_none()) return simulation.engine().set_chooser(nullptr);
  simulation.engine().set_chooser([chooser](std::int64_t size, bool may_take_backward) {
    nb::gil_scoped_acquire held;
    return nb::cast<std::vector<CellId>>(chooser(size, may_take_backward));
  });
}

// id, size, producer, home, flags (1 alive, 2 backward, 4 cost known), locks, pins, awaited, cost
using CellRow = std::tuple<CellId, std::int64_t, RecordId, int, int, std::int32_t, std::int32_t, std::int32_t, double>;

std::vector<CellRow> cell_rows(Simulation& simulation) {
  std::vector<CellRow> rows;
  const Tape& tape = simulation.engine().tape();
  for (std::size_t index = 0; index < tape.cells_capacity(); ++index) {
    const auto id = static_cast<CellId>(index);
    const Cell& cell = tape.cell(id);
    if (!cell.exists) continue;
    const int flags = (cell.alive ? 1 : 0) | (cell.backward ? 2 : 0) | (cell.is_cost_known ? 4 : 0);
    rows.emplace_back(id, cell.size, cell.producer, static_cast<int>(cell.spot.home), flags, cell.locks, cell.pins,
                      cell.awaited, cell.cost);
  }
  return rows;
}

// id, cost, inputs, outputs
using RecordRow = std::tuple<RecordId, double, Int32s, Int32s>;

std::vector<RecordRow> record_rows(Simulation& simulation) {
  std::vector<RecordRow> rows;
  const Tape& tape = simulation.engine().tape();
  for (std::size_t index = 0; index < tape.records_capacity(); ++index) {
    const auto id = static_cast<RecordId>(index);
    const Record& record = tape.record(id);
    if (record.exists) rows.emplace_back(id, record.cost, record.inputs, record.outputs);
  }
  return rows;
}

// Blocks of worth `free` are free, those of worth `forbidden` must stay where they are, those of worth `movable` must
// stay, too, but may lie elsewhere.
std::vector<Row> make_rows(const Int64s& sizes, const std::vector<double>& worths) {
  if (sizes.size() != worths.size()) throw ProgramError("sizes and worths differ in length");
  std::vector<Row> rows;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    if (sizes[index] <= 0) throw ProgramError("a block of " + std::to_string(sizes[index]) + " bytes");
    const double worth = worths[index];
    if (worth == kFreeWorth) {
      rows.push_back({sizes[index], 0.0, kNone, Standing::kHole});
    } else if (worth == kMovableWorth || worth == kForbidden) {
      const Standing standing = worth == kForbidden ? Standing::kFixed : Standing::kMovable;
      rows.push_back({sizes[index], kForbidden, kNone, standing});
    } else {
      rows.push_back({sizes[index], worth, kNone, Standing::kOffered});
    }
  }
  return rows;
}

// The window that the engine would clear: positions of its first and last block, or (-1, -1).
std::tuple<std::int32_t, std::int32_t> choose_window(const Int64s& sizes, const std::vector<double>& worths,
                                                     std::int64_t size, double surplus) {
  const Window window = find_window(make_rows(sizes, worths), size, surplus);
  if (window.first == kNoRow) return {kNone, kNone};
  return {static_cast<std::int32_t>(window.first), static_cast<std::int32_t>(window.last)};
}

// What the engine would evict to slide the rest together: its worth, infinite where nothing will do, and positions.
std::tuple<double, std::vector<std::size_t>> choose_squeeze(const Int64s& sizes, const std::vector<double>& worths,
                                                            std::int64_t size) {
  Squeezer squeezer;
  const Squeeze& plan = squeezer.plan(make_rows(sizes, worths), size);
  return {plan.worth, plan.victims};
}

// What the engine would slide together: positions of the first and last block and the owned bytes, or (-1, -1, -1).
std::tuple<std::int32_t, std::int32_t, std::int64_t> choose_slide(const Int64s& sizes,
                                                                  const std::vector<double>& worths,
                                                                  std::int64_t size) {
  const Slide slide = find_slide(make_rows(sizes, worths), size);
  if (slide.first == kNoRow) return {kNone, kNone, kNone};
  return {static_cast<std::int32_t>(slide.first), static_cast<std::int32_t>(slide.last), slide.owned};
}

// A program and an engine together; the program is kept alive by Python (keep_alive).
struct LoggedSimulation : Simulation {
  std::vector<Event> events;
  LoggedSimulation(const Program& program, const EngineConfig& config, bool logs) : Simulation(program, config) {
    if (logs) engine().set_log(&events);
  }
};

}  // namespace

NB_MODULE(_online, module) {
  module.doc() = "Native core of the online engine: a program of calls against an arena, a policy and its evictions.";
  nb::exception<ProgramError>(module, "ProgramError", PyExc_ValueError);


  nb::enum_<Method>(module, "Method").value("WINDOW", Method::kWindow).value("ONE_BY_ONE", Method::kOneByOne);
  nb::enum_<Score>(module, "Score")
      .value("COOP", Score::kCoop)
      .value("DTR", Score::kDtr)
      .value("DTE", Score::kDte)
      .value("LRU", Score::kLru)
      .value("SIZE", Score::kSize)
      .value("RANDOM", Score::kRandom)
      .value("DTR_NEIGHBORHOOD", Score::kDtrNeighborhood)
      .value("DTR_EQ", Score::kDtrEq)
      .value("LOCAL", Score::kLocal)
      .value("MSPS", Score::kMsps);
  nb::enum_<Compaction>(module, "Compaction")
      .value("NEVER", Compaction::kNever)
      .value("LAST_RESORT", Compaction::kLastResort)
      .value("WHEN_CHEAPER", Compaction::kWhenCheaper);

  nb::class_<EngineConfig>(module, "EngineConfig")
      .def(nb::init<>())
      .def_rw("capacity", &EngineConfig::capacity)
      .def_rw("alignment", &EngineConfig::alignment)
      .def_rw("small_bytes", &EngineConfig::small_bytes)
      .def_rw("slab_bytes", &EngineConfig::slab_bytes)
      .def_rw("method", &EngineConfig::method)
      .def_rw("score", &EngineConfig::score)
      .def_rw("surplus", &EngineConfig::surplus)
      .def_rw("is_ideal", &EngineConfig::is_ideal)
      .def_rw("is_copy_on_write", &EngineConfig::is_copy_on_write)
      .def_rw("is_two_tiered", &EngineConfig::is_two_tiered)
      .def_rw("keeps_dead", &EngineConfig::keeps_dead)
      .def_rw("holds_awaited", &EngineConfig::holds_awaited)
      .def_rw("compaction", &EngineConfig::compaction)
      .def_rw("copy_cost_per_byte", &EngineConfig::copy_cost_per_byte)
      .def_rw("staleness_epsilon", &EngineConfig::staleness_epsilon)
      .def_rw("max_depth", &EngineConfig::max_depth)
      .def_rw("max_cost", &EngineConfig::max_cost)
      .def_rw("seed", &EngineConfig::seed)
      .def(
          "set_place",
          [](EngineConfig& config, std::uint8_t temper, bool is_high, bool is_first_fit) {
            if (temper > 2) throw ProgramError("no such temper");
            config.places[temper] = pool::Place{is_high ? pool::End::kHigh : pool::End::kLow,
                                                is_first_fit ? pool::Fit::kFirst : pool::Fit::kBest};
          },
          "temper"_a, nb::kw_only(), "is_high"_a, "is_first_fit"_a);

  nb::class_<EngineStats>(module, "EngineStats")
      .def_ro("num_calls", &EngineStats::num_calls)
      .def_ro("num_recomputes", &EngineStats::num_recomputes)
      .def_ro("num_evictions", &EngineStats::num_evictions)
      .def_ro("num_searches", &EngineStats::num_searches)
      .def_ro("num_compactions", &EngineStats::num_compactions)
      .def_ro("num_frozen", &EngineStats::num_frozen)
      .def_ro("bytes_evicted", &EngineStats::bytes_evicted)
      .def_ro("bytes_moved", &EngineStats::bytes_moved)
      .def_ro("peak_bytes", &EngineStats::peak_bytes)
      .def_ro("base_cost", &EngineStats::base_cost)
      .def_ro("recompute_cost", &EngineStats::recompute_cost)
      .def_ro("move_cost", &EngineStats::move_cost)
      .def_ro("search_seconds", &EngineStats::search_seconds)
      .def_ro("fragmentation_sum", &EngineStats::fragmentation_sum);

  nb::class_<SimulationResult>(module, "SimulationResult")
      .def_ro("is_completed", &SimulationResult::is_completed)
      .def_ro("reason", &SimulationResult::reason)
      .def_ro("num_executed", &SimulationResult::num_executed)
      .def_ro("stats", &SimulationResult::stats)
      .def_ro("high_water", &SimulationResult::high_water);

  nb::class_<Program>(module, "Program")
      .def("__init__",
           [](Program* self, const Bytes& kinds, const Bytes& flags, const Bytes& tempers,
              const std::vector<double>& costs, const Int64s& workspaces, const Int32s& input_starts, Int32s inputs,
              const Int32s& output_starts, Int32s outputs, Int64s output_sizes, Int32s output_overwrites,
              Bytes output_tempers, std::int32_t num_variables) {
             new (self) Program(make_program(kinds, flags, tempers, costs, workspaces, input_starts, std::move(inputs),
                                             output_starts, std::move(outputs), std::move(output_sizes),
                                             std::move(output_overwrites), std::move(output_tempers), num_variables));
           },
           nb::kw_only(), "kinds"_a, "flags"_a, "tempers"_a, "costs"_a, "workspaces"_a, "input_starts"_a, "inputs"_a,
           "output_starts"_a, "outputs"_a, "output_sizes"_a, "output_overwrites"_a, "output_tempers"_a,
           "num_variables"_a)
      .def_prop_ro("num_instructions", [](const Program& program) { return program.instructions.size(); });

  module.attr("AUTOMATIC") = kAutomatic;
  module.attr("FREE") = kFreeWorth;
  module.attr("FORBIDDEN") = kForbidden;
  module.attr("MOVABLE") = kMovableWorth;
  module.def("choose_window", &choose_window, "sizes"_a, "worths"_a, "size"_a, nb::kw_only(), "surplus"_a = 1.0);
  module.def("choose_squeeze", &choose_squeeze, "sizes"_a, "worths"_a, "size"_a);
  module.def("choose_slide", &choose_slide, "sizes"_a, "worths"_a, "size"_a);

  nb::class_<LoggedSimulation>(module, "Simulation")
      .def(nb::init<const Program&, const EngineConfig&, bool>(), nb::keep_alive<1, 2>(), "program"_a, "config"_a,
           nb::kw_only(), "logs"_a = false)
      .def("run", [](LoggedSimulation& simulation, std::int32_t until) { return simulation.run(until); },
           "until"_a = std::numeric_limits<std::int32_t>::max(), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("position", [](const LoggedSimulation& simulation) { return simulation.position(); })
      .def_prop_ro("clock", [](LoggedSimulation& simulation) { return simulation.engine().clock(); })
      .def("set_chooser", [](LoggedSimulation& simulation, nb::object chooser) { set_chooser(simulation, chooser); },
           "chooser"_a.none())
      .def("blocks",
           [](LoggedSimulation& simulation, bool may_take_backward) { return block_rows(simulation, may_take_backward); },
           "may_take_backward"_a = true)
      .def("projected_cost",
           [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().projected_cost(cell); })
      .def("neighborhood_cost",
           [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().tape().neighborhood_cost(cell); })
      .def("component_cost",
           [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().component_cost(cell); })
      .def("own_cost",
           [](LoggedSimulation& simulation, CellId cell) {
             const RecordId producer = simulation.engine().cell(cell).producer;
             return producer == kNone ? 0.0 : simulation.engine().tape().record(producer).cost;
           })
      .def("is_backward",
           [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().cell(cell).backward; })
      .def("chance", [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().chance(cell); })
      .def("staleness", [](LoggedSimulation& simulation, CellId cell) { return simulation.engine().staleness(cell); })
      .def("cells", [](LoggedSimulation& simulation) { return cell_rows(simulation); })
      .def("records", [](LoggedSimulation& simulation) { return record_rows(simulation); })
      .def("restart", [](LoggedSimulation& simulation) { simulation.restart(); })
      .def_prop_ro("stats", [](LoggedSimulation& simulation) { return simulation.engine().stats(); })
      .def("cell_of", [](LoggedSimulation& simulation, std::int32_t variable) { return simulation.cell_of(variable); })
      .def("events", [](const LoggedSimulation& simulation) {
        std::vector<std::tuple<std::uint8_t, std::int32_t, std::int64_t, std::int64_t>> rows;
        for (const Event& event : simulation.events) {
          rows.emplace_back(static_cast<std::uint8_t>(event.kind), event.id, event.offset, event.size);
        }
        return rows;
      });
}
