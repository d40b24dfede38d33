// Bytes for a request. Where no hole holds it: victims are chosen and evicted, or blocks slid together.
//
//   allocate(R) ─▶ a hole? ─no─▶ survey ─▶ choose: a window, or one by one ──▶ evict ──▶ a hole?
//                                  └─────▶ squeeze: cheaper, or the last resort ──▶ evict, slide
//
// A search leaves alone at first what was made in backward, and what a recomputation that goes in circles awaits.
// Source: Coop (NeurIPS 2023) for the window. Tiers, compaction and holding on: docs/decisions/online-engine.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine_config.hpp"
#include "lowtide/engine_errors.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_release.hpp"
#include "lowtide/engine_state.hpp"
#include "lowtide/engine_survey.hpp"
#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/squeeze.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Makes room; keeps its memory from one search to the next.
class Allocator {
 public:
  // Chooses victims in the policy's stead: cells to evict for `size` bytes, empty: gives up.
  using Chooser = std::function<std::vector<CellId>(std::int64_t size, bool may_take_backward)>;

  Allocator(EngineState& state, Releaser& releaser) : state_(state), releaser_(releaser) {}

  void set_chooser(Chooser chooser) { chooser_ = std::move(chooser); }

  // Bytes for a running op: evicts when it must, never recomputes. Throws OutOfMemory.
  Spot allocate(std::int64_t size, Temper temper) {
    size = std::max<std::int64_t>(size, 1);
    if (state_.config.is_ideal) make_bytes(size);
    Spot spot;
    if (size <= state_.config.small_bytes) {
      spot.offset = state_.small.allocate(size, kRaw);
      if (spot.offset < 0 && make_slab_room()) spot.offset = state_.small.allocate(size, kRaw);
      if (spot.offset >= 0) {
        spot.home = Home::kSmall;
        state_.grow(size);
        state_.log(EventKind::kTake, 1, spot.offset, size);
        return spot;
      }
    }
    const pool::Place place = state_.config.places[static_cast<std::size_t>(temper)];
    spot.block = state_.memory.allocate(size, kRaw, place);
    if (spot.block == pool::kNone) spot.block = make_room(size, place);
    spot.home = Home::kPool;
    spot.offset = state_.memory[spot.block].offset;
    state_.grow(state_.memory[spot.block].size);
    state_.log(EventKind::kTake, 0, spot.offset, state_.memory[spot.block].size);
    return spot;
  }

  // The op found no room, and has given back what it took: make a hole of `size` bytes by sliding blocks together, its
  // own inputs among them, so that it may be tried once more. False where that cannot be done.
  bool make_way(std::span<const CellId> inputs, std::int64_t size) {
    if (state_.config.compaction == Compaction::kNever || state_.config.is_ideal) return false;
    unwound_.assign(inputs.begin(), inputs.end());
    pool::BlockId room = pool::kNone;
    for (const bool may_take_backward : {false, true}) {
      if (room == pool::kNone) room = squeeze(size, state_.config.places[0], may_take_backward);
    }
    unwound_.clear();
    if (room != pool::kNone) state_.memory.free(room);
    return room != pool::kNone;
  }

 private:
  static constexpr std::int64_t kSurplusShare = 64;  // larger requests than such a share of the arena leave no surplus

  EngineState& state_;
  Releaser& releaser_;
  Chooser chooser_;
  std::vector<Row> rows_;        // the arena as the last search found it
  std::vector<CellId> victims_;  // what the last search chose
  Squeezer squeezer_;
  std::vector<CellId> unwound_;  // inputs of an op that will be tried again: they may move

  // ------------------------------------------------------------------ room
  // Where addresses do not matter: evict one by one until the bytes suffice.
  void make_bytes(std::int64_t size) {
    if (state_.stats.resident_bytes + size <= state_.config.capacity) return;
    const double started = state_.host.seconds();
    ++state_.stats.num_searches;
    for (const bool may_take_backward : {false, true}) {
      if (!may_take_backward && !state_.config.is_two_tiered) continue;
      while (state_.stats.resident_bytes + size > state_.config.capacity) {
        choose(size, may_take_backward);
        if (victims_.empty()) break;
        for (const CellId id : victims_) state_.evict(id);
      }
    }
    state_.stats.search_seconds += state_.host.seconds() - started;
    if (state_.stats.resident_bytes + size > state_.config.capacity) fail(size);
    state_.stats.fragmentation_sum +=
        static_cast<double>(state_.config.capacity - state_.stats.resident_bytes - size) /
        static_cast<double>(state_.config.capacity);
  }

  bool make_slab_room() {
    try {
      const pool::BlockId room = make_room(state_.config.slab_bytes, state_.config.places[2]);
      state_.memory.free(room);
      return true;
    } catch (const OutOfMemory&) {
      return false;  // the caller asks the pool itself, for less
    }
  }

  pool::BlockId make_room(std::int64_t size, pool::Place place) {
    const double started = state_.host.seconds();
    const double slid = state_.stats.slide_seconds;
    ++state_.stats.num_searches;
    pool::BlockId block = state_.is_circling ? clear_without_awaited(size, place) : pool::kNone;
    if (block == pool::kNone) block = clear_tiers(size, place);
    state_.stats.search_seconds += state_.host.seconds() - started - (state_.stats.slide_seconds - slid);
    if (block == pool::kNone && releaser_.freeze_zombies()) block = clear_tier(size, place, true);
    if (block == pool::kNone) fail(size);
    state_.stats.fragmentation_sum +=
        static_cast<double>(state_.memory.free_bytes()) / static_cast<double>(state_.memory.capacity());
    return block;
  }

  // What a recomputation in progress still reads goes last, even after values made in backward.
  pool::BlockId clear_without_awaited(std::int64_t size, pool::Place place) {
    state_.is_holding = true;
    try {
      const pool::BlockId block = clear_tiers(size, place);
      state_.is_holding = false;
      return block;
    } catch (...) {
      state_.is_holding = false;
      throw;
    }
  }

  pool::BlockId clear_tiers(std::int64_t size, pool::Place place) {
    for (const bool may_take_backward : {false, true}) {
      if (!may_take_backward && !state_.config.is_two_tiered) continue;
      pool::BlockId block = clear_tier(size, place, may_take_backward);
      if (block == pool::kNone && state_.config.compaction != Compaction::kNever) {
        block = squeeze(size, place, may_take_backward);
      }
      if (block != pool::kNone) return block;
    }
    return pool::kNone;
  }

  pool::BlockId clear_tier(std::int64_t size, pool::Place place, bool may_take_backward) {
    while (true) {
      const pool::BlockId block = state_.memory.allocate(size, kRaw, place);
      if (block != pool::kNone) return block;
      choose(size, may_take_backward);
      if (victims_.empty()) return pool::kNone;
      if (state_.config.compaction == Compaction::kWhenCheaper) {
        const Squeeze& plan = squeezer_.plan(rows_, size);
        if (plan.is_found() && is_cheaper(plan, size)) return carry_out(plan, size, place);
      }
      for (const CellId id : victims_) state_.evict(id);
    }
  }

  [[noreturn]] void fail(std::int64_t size) const {
    std::int64_t locked = 0, unevictable = 0;
    for (pool::BlockId id = state_.memory.first(); id != pool::kNone; id = state_.memory[id].next) {
      const pool::Block& block = state_.memory[id];
      if (block.owner == pool::kFree) continue;
      if (block.owner >= 0 && block.owner < kRaw && state_.tape.cell(static_cast<CellId>(block.owner)).locks > 0) {
        locked += block.size;
      } else if (block.owner < 0 || block.owner >= kRaw || !state_.may_evict(static_cast<CellId>(block.owner))) {
        unevictable += block.size;
      }
    }
    const std::int64_t capacity = state_.config.capacity, resident = state_.stats.resident_bytes;
    const std::int64_t free = state_.config.is_ideal ? capacity - resident : state_.memory.free_bytes();
    throw OutOfMemory(size, capacity, resident, locked, unevictable, free,
                      state_.config.is_ideal ? free : state_.memory.largest_hole());
  }

  // ------------------------------------------------------------------ victims
  // Survey the arena, and put into `victims_` what the policy would evict: a single value where it goes one by one.
  void choose(std::int64_t size, bool may_take_backward) {
    victims_.clear();
    if (chooser_) victims_ = ask_chooser(size, may_take_backward);
    survey(state_, unwound_, may_take_backward, rows_);
    if (chooser_) return;
    if (state_.config.method == Method::kOneByOne || state_.config.is_ideal) {
      const std::size_t victim = find_cheapest(rows_);
      if (victim != kNoRow) victims_.push_back(rows_[victim].cell);
      return;
    }
    const Window window = find_window(rows_, size, surplus_for(size));
    if (window.first == kNoRow) return;
    for (std::size_t index = window.first; index <= window.last; ++index) {
      if (rows_[index].standing == Standing::kOffered) victims_.push_back(rows_[index].cell);
    }
  }

  std::vector<CellId> ask_chooser(std::int64_t size, bool may_take_backward) {
    std::vector<CellId> victims = chooser_(size, may_take_backward);
    for (const CellId id : victims) {
      if (id < 0 || static_cast<std::size_t>(id) >= state_.tape.cells_capacity() || !state_.may_evict(id)) {
        throw std::invalid_argument("cell " + std::to_string(id) + " was chosen, but must not be evicted");
      }
    }
    return victims;
  }

  double surplus_for(std::int64_t size) const {
    return size > state_.config.capacity / kSurplusShare ? 1.0 : state_.config.surplus;
  }

  // Whether a squeeze costs less than evicting `victims_`, in the clock's unit: what has to be recomputed if all of it
  // is wanted again, and what is moved. Victims that make room for more than the request count for it in part.
  bool is_cheaper(const Squeeze& plan, std::int64_t size) {
    double limit = 0.0, cost = 0.0;
    std::int64_t bytes = 0;
    for (const CellId id : victims_) {
      limit += state_.tape.projected_cost(id);
      bytes += state_.memory[state_.tape.cell(id).spot.block].size;
    }
    limit /= credit_of(bytes, size, surplus_for(size));
    for (const std::size_t victim : plan.victims) cost += state_.tape.projected_cost(rows_[victim].cell);
    if (!(cost < limit)) return false;
    for (const std::size_t victim : plan.victims) rows_[victim].standing = Standing::kHole;
    const auto moved = static_cast<double>(find_slide(rows_, size).owned);
    return cost + state_.config.copy_cost_per_byte * moved < limit;
  }

  // ------------------------------------------------------------------ compaction
  // No window is large enough: of the runs whose blocks may all move, take the one where evicting what is cheapest per
  // byte costs least, and slide together what stays.
  pool::BlockId squeeze(std::int64_t size, pool::Place place, bool may_take_backward) {
    survey(state_, unwound_, may_take_backward, rows_);
    return carry_out(squeezer_.plan(rows_, size), size, place);
  }

  pool::BlockId carry_out(const Squeeze& plan, std::int64_t size, pool::Place place) {
    if (!plan.is_found()) return pool::kNone;
    for (const std::size_t victim : plan.victims) state_.evict(rows_[victim].cell);
    return compact(size) ? state_.memory.allocate(size, kRaw, place) : pool::kNone;
  }

  // Slide blocks together until a hole holds `size`.
  bool compact(std::int64_t size) {
    survey(state_, unwound_, true, rows_);
    const Slide best = find_slide(rows_, size);
    if (best.first == kNoRow) return false;
    ++state_.stats.num_compactions;
    const double started = state_.host.seconds();
    for (std::size_t index = best.first; index <= best.last; ++index) {
      if (rows_[index].standing != Standing::kHole) slide(rows_[index].cell);
    }
    state_.stats.slide_seconds += state_.host.seconds() - started;
    return state_.memory.largest_hole() >= size;
  }

  void slide(CellId id) {
    Spot& spot = state_.tape.cell(id).spot;
    const std::int64_t from = spot.offset;
    spot.block = state_.memory.slide(spot.block, pool::End::kLow);
    spot.offset = state_.memory[spot.block].offset;
    if (spot.offset == from) return;
    state_.stats.bytes_moved += state_.tape.cell(id).size;
    const double cost = state_.config.copy_cost_per_byte * static_cast<double>(state_.tape.cell(id).size);
    state_.clock += cost;
    state_.stats.move_cost += cost;
    state_.log(EventKind::kMove, id, spot.offset, state_.tape.cell(id).size);
    state_.host.moved(id, from, spot.offset, state_.tape.cell(id).size);
  }
};

}  // namespace lowtide::online
