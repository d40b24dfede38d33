// Ops that write into their inputs' bytes.
//
//   record r ──▶ a ──▶ op in place ──▶ a'      a' takes over a's bytes; a stays behind as a ghost, which can be
//                                              recomputed; or the op gets a copy of a (copy on write)
//   leaf p ──▶ optimizer ──▶ p'                p is lost for good: what the program holds of its readers is
//                                              recomputed and frozen first
//
// Source: Coop (NeurIPS 2023), recomputable in-place. Departure: freezing. Replays in place: engine_recompute.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lowtide/engine_allocate.hpp"
#include "lowtide/engine_config.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_recompute.hpp"
#include "lowtide/engine_release.hpp"
#include "lowtide/engine_state.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Makes cells ready to be overwritten, and hands their bytes over.
class Mutator {
 public:
  Mutator(EngineState& state, Releaser& releaser, Allocator& allocator, Recomputer& recomputer)
      : state_(state), releaser_(releaser), allocator_(allocator), recomputer_(recomputer) {}

  // Copy-on-write in progress: cells that an op is about to mutate, and the copies that it must mutate instead.
  std::span<const std::pair<CellId, Spot>> copies() const { return copies_; }

  // An op is about to overwrite a cell.
  void prepare(CellId id, bool is_replayable) {
    if (state_.is_leaf(id) || !is_replayable) {
      part_from_readers(id);
    } else if (state_.config.is_copy_on_write && state_.tape.cell(id).pins == 0) {
      const Spot fresh = allocator_.allocate(state_.tape.cell(id).size, Temper::kCheap);
      state_.host.copy(state_.tape.cell(id).spot, fresh, state_.tape.cell(id).size);
      copies_.emplace_back(id, fresh);
    }
  }

  // `old` is superseded by `fresh`, which gets its bytes (or the copy made for it).
  void take_over(CellId old, CellId fresh) {
    Cell& before = state_.tape.cell(old);
    before.alive = false;
    for (std::size_t index = 0; index < copies_.size(); ++index) {
      if (copies_[index].first != old) continue;
      state_.settle_at(fresh, copies_[index].second);
      for (; before.pins > 0; --before.pins) {  // whoever asked for the address got the copy's
        if (before.spot.home == Home::kPool) state_.memory.unpin(before.spot.block);
        state_.pin_block(fresh);
      }
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
      return;
    }
    const Spot spot = before.spot;
    state_.tape.cell(fresh).pins = before.pins;
    state_.tape.cell(fresh).kept_bytes = before.kept_bytes;
    const bool is_copied_out = spot.home == Home::kSmall && state_.is_leaf(old) && !before.consumers.empty();
    before.pins = 0;
    before.spot = is_copied_out ? Spot{Home::kExternal, pool::kNone, -1} : Spot{};
    state_.settle_at(fresh, spot);
    state_.tape.forget_costs(old);
  }

  // The op failed.
  void cancel_copies() {
    for (const auto& [id, spot] : copies_) state_.free_spot(spot, state_.tape.cell(id).size);
    copies_.clear();
  }

 private:
  EngineState& state_;
  Releaser& releaser_;
  Allocator& allocator_;
  Recomputer& recomputer_;
  std::vector<std::pair<CellId, Spot>> copies_;  // copy-on-write in progress: the new bytes of a cell

  // A version is about to be lost for good: whatever the program holds and would need it for becomes a leaf itself.
  void part_from_readers(CellId id) {
    if (state_.tape.cell(id).consumers.empty()) return;
    if (state_.tape.cell(id).spot.home == Home::kSmall && state_.is_leaf(id)) {
      state_.log(EventKind::kTakeOut, id, 0, 0);
      state_.host.take_out(id);
      return;
    }
    const Recomputer::Session session(recomputer_);
    std::vector<CellId> kept;  // they must stay, but may move: the op has not begun
    const std::vector<CellId> frontier = state_.tape.live_frontier(id);
    recomputer_.await(frontier);
    try {
      for (const CellId held : frontier) {
        recomputer_.gather(std::span<const CellId>(&held, 1));
        ++state_.tape.cell(held).waits;
        kept.push_back(held);
      }
    } catch (...) {
      give_up(kept);
      throw;
    }
    for (const CellId held : kept) releaser_.freeze(held);
    give_up(kept);
  }

  // What was kept for an op need not be any more.
  void give_up(const std::vector<CellId>& kept) {
    for (const CellId id : kept) --state_.tape.cell(id).waits;
    releaser_.unlock(kept);
  }
};

}  // namespace lowtide::online
