// Replays a compiled trace through the online engine, with nothing behind it: what would the budget have cost?
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine.hpp"
#include "lowtide/engine_config.hpp"
#include "lowtide/engine_errors.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_host.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// One instruction per line of a trace. `variables` are storages' versions, numbered by the program.
struct Instruction {
  enum class Kind : std::uint8_t { kLeaf, kCall, kRelease };
  Kind kind = Kind::kCall;
  bool is_backward = false;
  bool is_replayable = true;
  bool is_external = false;  // a leaf in memory outside the arena
  Temper temper = Temper::kExpensive;
  double cost = 0.0;
  std::int64_t workspace = 0;          // bytes
  std::int32_t first_input = 0, num_inputs = 0;
  std::int32_t first_output = 0, num_outputs = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<std::int32_t> inputs;          // variables read (distinct per call); of a release: the one released
  std::vector<std::int32_t> outputs;         // variables made
  std::vector<std::int64_t> output_sizes;    // bytes
  std::vector<std::int32_t> output_overwrites;  // variable whose bytes it takes over, or kNone
  std::vector<std::uint8_t> output_tempers;  // Temper
  std::int32_t num_variables = 0;
};

struct SimulationResult {
  bool is_completed = false;
  std::string reason;             // why not
  std::int32_t num_executed = 0;  // instructions
  EngineStats stats;
  std::int64_t high_water = 0;    // highest address used, bytes
};

class Simulation : public Host {
 public:
  Simulation(const Program& program, const EngineConfig& config) : program_(program), engine_(config, *this) {
    cells_.assign(static_cast<std::size_t>(program.num_variables), kNone);
  }

  Engine& engine() { return engine_; }
  std::int32_t position() const { return position_; }
  CellId cell_of(std::int32_t variable) const { return cells_[static_cast<std::size_t>(variable)]; }

  // The program once more, in the same arena: for what it leaves behind.
  void restart() { position_ = 0; }

  // Go on until instruction `until`, or where the budget ends it.
  SimulationResult run(std::int32_t until = std::numeric_limits<std::int32_t>::max()) {
    SimulationResult result;
    const auto end = std::min(until, static_cast<std::int32_t>(program_.instructions.size()));
    try {
      for (; position_ < end; ++position_) step(program_.instructions[static_cast<std::size_t>(position_)]);
      result.is_completed = position_ == static_cast<std::int32_t>(program_.instructions.size());
    } catch (const OutOfMemory& error) {
      result.reason = error.what();
    } catch (const Thrashing& error) {
      result.reason = error.what();
    }
    result.num_executed = position_;
    result.stats = engine_.stats();
    result.high_water = engine_.memory().high_water();
    return result;
  }

  void replay(RecordId record, std::vector<Spot>& spots) override {
    for (std::size_t index = 0; index < spots.size(); ++index) {
      if (spots[index].home != Home::kAbsent) continue;
      const Record& recipe = engine_.tape().record(record);
      spots[index] = engine_.allocate(recipe.sizes[index], static_cast<Temper>(recipe.temper));
    }
  }

 private:
  const Program& program_;
  Engine engine_;
  std::vector<CellId> cells_;
  std::int32_t position_ = 0;
  std::vector<CellId> inputs_, mutated_, made_;
  std::vector<Engine::Output> outputs_;

  void bind(std::int32_t variable, CellId cell) {
    cells_[static_cast<std::size_t>(variable)] = cell;
    engine_.note(EventKind::kBind, cell, variable);
  }

  void step(const Instruction& instruction) {
    engine_.note(EventKind::kBegin, position_, 0);
    switch (instruction.kind) {
      case Instruction::Kind::kLeaf: return make_leaves(instruction);
      case Instruction::Kind::kCall: return call(instruction);
      case Instruction::Kind::kRelease: return release(instruction);
    }
  }

  void make_leaves(const Instruction& instruction) {
    for (std::int32_t k = 0; k < instruction.num_outputs; ++k) {
      const auto index = static_cast<std::size_t>(instruction.first_output + k);
      Spot spot;
      if (instruction.is_external) {
        spot.home = Home::kExternal;
      } else {
        spot = engine_.allocate(program_.output_sizes[index], Temper::kResident);
      }
      bind(program_.outputs[index], engine_.add_leaf(program_.output_sizes[index], spot));
    }
  }

  void call(const Instruction& instruction) {
    inputs_.clear();
    mutated_.clear();
    outputs_.clear();
    for (std::int32_t k = 0; k < instruction.num_inputs; ++k) {
      inputs_.push_back(cell_of(program_.inputs[static_cast<std::size_t>(instruction.first_input + k)]));
    }
    for (std::int32_t k = 0; k < instruction.num_outputs; ++k) {
      const auto index = static_cast<std::size_t>(instruction.first_output + k);
      Engine::Output output;
      output.size = program_.output_sizes[index];
      if (program_.output_overwrites[index] != kNone) {
        output.overwrites = cell_of(program_.output_overwrites[index]);
        mutated_.push_back(output.overwrites);
      }
      outputs_.push_back(output);
    }
    engine_.begin(inputs_, mutated_, instruction.is_replayable);
    try {
      allocate_outputs(instruction);
    } catch (const OutOfMemory&) {
      if (!mutated_.empty() || !engine_.make_way(inputs_, bytes_to_make(instruction))) {
        engine_.abort(inputs_);
        throw;
      }
      retry_outputs(instruction);
    } catch (...) {
      engine_.abort(inputs_);
      throw;
    }
    const Engine::Call call{instruction.cost, instruction.is_backward, instruction.is_replayable, instruction.temper};
    engine_.end(call, inputs_, outputs_, made_);
    for (std::int32_t k = 0; k < instruction.num_outputs; ++k) {
      bind(program_.outputs[static_cast<std::size_t>(instruction.first_output + k)],
           made_[static_cast<std::size_t>(k)]);
    }
  }

  std::int64_t bytes_to_make(const Instruction& instruction) const {
    std::int64_t total = instruction.workspace;
    for (const Engine::Output& output : outputs_) total += output.size;
    return std::max<std::int64_t>(total, 1);
  }

  void retry_outputs(const Instruction& instruction) {
    try {
      allocate_outputs(instruction);
    } catch (...) {
      engine_.abort(inputs_);
      throw;
    }
  }

  // Bytes for what the op makes, with its workspace beside them; if they cannot be had, none are held.
  void allocate_outputs(const Instruction& instruction) {
    Spot workspace;
    try {
      if (instruction.workspace > 0) workspace = engine_.allocate(instruction.workspace, Temper::kCheap);
      for (std::int32_t k = 0; k < instruction.num_outputs; ++k) {
        Engine::Output& output = outputs_[static_cast<std::size_t>(k)];
        const auto index = static_cast<std::size_t>(instruction.first_output + k);
        const auto temper = static_cast<Temper>(program_.output_tempers[index]);
        if (output.overwrites == kNone) output.spot = engine_.allocate(output.size, temper);
      }
    } catch (...) {
      for (Engine::Output& output : outputs_) engine_.free_spot(std::exchange(output.spot, Spot{}), output.size);
      engine_.free_spot(workspace, instruction.workspace);
      throw;
    }
    engine_.free_spot(workspace, instruction.workspace);
  }

  void release(const Instruction& instruction) {
    for (std::int32_t k = 0; k < instruction.num_inputs; ++k) {
      const auto variable = static_cast<std::size_t>(
          program_.inputs[static_cast<std::size_t>(instruction.first_input + k)]);
      engine_.note(EventKind::kRelease, cells_[variable], static_cast<std::int64_t>(variable));
      engine_.release(cells_[variable]);
      cells_[variable] = kNone;
    }
  }
};

}  // namespace lowtide::online
