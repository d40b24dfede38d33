// What the engine's log cannot tell: names. The log speaks of cells, whose numbers are used again, and of calls by
// number; these notes say which op a call was, and number the contents that storages have had one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine.hpp"
#include "torch_shim_schema.hpp"

namespace lowtide::shim {

struct Note {
  enum Flag : std::int32_t { kBackward = 1, kReplayable = 2, kRandom = 4, kExternal = 8 };
  static constexpr int kTemperShift = 4;  // of flags: where recomputations place what they make

  const OpInfo* op = nullptr;  // null: a leaf, made by no op that was seen
  std::vector<std::int64_t> inputs, outputs;
  std::vector<std::int64_t> overwritten;  // by output: the contents whose bytes it took over, or -1
  std::vector<std::int64_t> sizes;        // by output: bytes
  std::vector<std::int32_t> tempers;      // by output: where it was placed
  double cost = 0.0;
  std::int32_t flags = 0;
};

class Notes {
 public:
  bool is_on = false;

  const std::vector<Note>& all() const { return notes_; }

  // The number of the contents that a cell holds from now on; a binding is logged.
  std::int64_t name(online::Engine& engine, online::CellId cell) {
    if (static_cast<std::size_t>(cell) >= variable_by_cell_.size()) variable_by_cell_.resize(cell * 2 + 64, -1);
    variable_by_cell_[cell] = num_variables_++;
    engine.note(online::EventKind::kBind, cell, variable_by_cell_[cell]);
    return variable_by_cell_[cell];
  }

  std::int64_t name_of(online::CellId cell) const {
    return static_cast<std::size_t>(cell) < variable_by_cell_.size() ? variable_by_cell_[cell] : -1;
  }

  // What follows in the log belongs to this call.
  Note& begin(online::Engine& engine) {
    engine.note(online::EventKind::kBegin, static_cast<std::int32_t>(notes_.size()), 0);
    return notes_.emplace_back();
  }

  Note& last() { return notes_.back(); }

  void release(online::Engine& engine, online::CellId cell) {
    if (is_on) engine.note(online::EventKind::kRelease, cell, name_of(cell));
  }

 private:
  std::vector<Note> notes_;
  std::vector<std::int64_t> variable_by_cell_;
  std::int64_t num_variables_ = 0;
};

}  // namespace lowtide::shim
