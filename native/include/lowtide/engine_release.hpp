// What becomes of cells that the program no longer holds: destroyed, dropped until somebody needs them, or kept.
//
//   leaf p ──▶ r0 ──▶ a ──▶ r1 ──▶ b      p is released: it stays for b's recipe, as a zombie; or b, the live frontier
//                  (absent)     (held)    of p, is frozen: it becomes a leaf, and p, r0, a and r1 are gone
//
// Dead-but-needed values as in DTR (ICLR 2021). Departure: freezing, and dropping a recomputable value as soon as it is
// released (docs/decisions/online-engine.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lowtide/engine_events.hpp"
#include "lowtide/engine_state.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Settles cells; knows the dropped leaves that living records read.
class Releaser {
 public:
  explicit Releaser(EngineState& state) : state_(state) {}

  // An op no longer uses some cells.
  void unlock(std::span<const CellId> ids) {
    for (const CellId id : ids) --state_.tape.cell(id).locks;
    for (const CellId id : ids) {
      if (state_.tape.cell(id).exists && !state_.tape.cell(id).alive) settle(id);
    }
  }

  // A cell that the program no longer holds: destroy, keep or drop it.
  void settle(CellId id) {
    const Cell& subject = state_.tape.cell(id);
    if (!subject.exists || subject.alive || subject.locks > 0 || subject.pins > 0) return;
    if (state_.tape.is_unneeded(id)) {
      state_.tape.collect(id);
    } else if (subject.producer == kNone) {
      if (subject.spot.home == Home::kPool || subject.spot.home == Home::kSmall) part_with_leaf(id);
    } else {
      if (subject.kept_bytes > 0) {
        charge(state_.tape.live_frontier(id), std::exchange(state_.tape.cell(id).kept_bytes, 0));
      }
      const bool is_droppable = state_.tape.cell(id).exists && subject.awaited == 0 && subject.spot.home == Home::kPool;
      if (is_droppable && !state_.config.keeps_dead) state_.drop(id);
    }
  }

  // Give up a cell's recipe, and whatever was kept for that alone.
  void freeze(CellId id) {
    if (state_.is_leaf(id)) return;
    ++state_.stats.num_frozen;
    state_.tape.make_leaf(id);
  }

  // Before giving up: cut every dropped leaf from its readers, where these are resident. Whether one has gone by that.
  bool freeze_zombies() {
    bool has_freed = false;
    for (const CellId id : std::vector<CellId>(zombies_)) {
      if (!state_.tape.cell(id).exists || state_.tape.cell(id).zombie_index == kNone) continue;
      const std::vector<CellId> frontier = state_.tape.live_frontier(id);
      if (!may_freeze(frontier)) continue;
      for (const CellId reader : frontier) freeze(reader);
      has_freed |= !state_.tape.cell(id).exists;
    }
    return has_freed;
  }

  // The tape destroys a cell: give its bytes back.
  void forget(CellId id) {
    const Cell& subject = state_.tape.cell(id);
    remove_zombie(id);
    const Spot spot = subject.spot;
    state_.tape.cell(id).spot = Spot{};
    state_.components.forget(id);
    state_.host.cell_gone(id);
    state_.free_spot(spot, subject.size);
    state_.log(EventKind::kGone, id, 0, 0);
  }

 private:
  EngineState& state_;
  std::vector<CellId> zombies_;  // leaves that the program dropped and living records read

  // A dropped leaf stays for its readers' recipes. They become leaves instead where that costs no more bytes; many
  // small ones count together: so does a reader that has no more bytes than its recipe keeps.
  void part_with_leaf(CellId id) {
    const bool is_known = state_.tape.cell(id).zombie_index != kNone;
    const std::int64_t size = state_.tape.cell(id).size;
    if (is_known && state_.tape.cell(id).spot.home == Home::kSmall) return;
    const std::vector<CellId> frontier = state_.tape.live_frontier(id);
    std::int64_t bytes = 0;
    for (const CellId reader : frontier) bytes += state_.tape.cell(reader).size;
    const bool is_cheap = bytes <= size && may_freeze(frontier);
    if (is_cheap) {
      for (const CellId reader : frontier) freeze(reader);
    } else if (!is_known) {
      charge(frontier, size);
    }
    if (!is_known && state_.tape.cell(id).exists) add_zombie(id);
  }

  // Share `bytes` that dropped leaves have among those for whose recipes they are kept.
  void charge(const std::vector<CellId>& frontier, std::int64_t bytes) {
    for (const CellId reader : frontier) {
      Cell& held = state_.tape.cell(reader);
      held.kept_bytes += bytes / static_cast<std::int64_t>(frontier.size());
      if (held.kept_bytes >= held.size && may_freeze(std::span(&reader, 1))) freeze(reader);
    }
  }

  // What an op uses must stay what it is: it may be mutating it, as something that can come back.
  bool may_freeze(std::span<const CellId> cells) const {
    return std::all_of(cells.begin(), cells.end(), [this](CellId id) {
      return state_.tape.cell(id).is_resident() && state_.tape.cell(id).locks == 0;
    });
  }

  void add_zombie(CellId id) {
    state_.tape.cell(id).zombie_index = static_cast<std::int32_t>(zombies_.size());
    zombies_.push_back(id);
  }

  void remove_zombie(CellId id) {
    const std::int32_t index = std::exchange(state_.tape.cell(id).zombie_index, kNone);
    if (index == kNone) return;
    const CellId last = zombies_.back();
    zombies_.pop_back();
    if (last == id) return;
    zombies_[static_cast<std::size_t>(index)] = last;
    state_.tape.cell(last).zombie_index = index;
  }
};

}  // namespace lowtide::online
