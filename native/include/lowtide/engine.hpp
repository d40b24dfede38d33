// The online engine: keeps the bytes of a running program within an arena by evicting and recomputing.
//
//   begin(inputs) ── gather: what is absent is recomputed, then everything is locked
//   allocate(R)   ── no hole? the policy names victims, they are evicted, the request is served from their place
//   end(outputs)  ── a record is kept, outputs become cells, locks are given back
//   release(cell) ── the program's last reference is gone
//
// Its parts: engine_state.hpp says who knows whom.
//
// It knows no tensors: a Host does what only the outside can do (run an op again, forget a pointer, move bytes). The
// simulator's host does nothing; the runtime's is PyTorch. So both decide alike, call for call.
//
// Sources: Coop (NeurIPS 2023) for the window, the two ends and recomputable in-place; DTR (ICLR 2021) for records and
// dead-but-needed values. Departures: freezing of live frontiers, two tiers, capped chains, compaction, recomputations
// that go in circles (docs/decisions/online-engine.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine_allocate.hpp"
#include "lowtide/engine_config.hpp"
#include "lowtide/engine_errors.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_host.hpp"
#include "lowtide/engine_in_place.hpp"
#include "lowtide/engine_recompute.hpp"
#include "lowtide/engine_release.hpp"
#include "lowtide/engine_state.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

class Engine {
 public:
  struct Output {
    std::int64_t size = 0;         // bytes
    Spot spot;                     // where the op put it (ignored for overwriting ones)
    CellId overwrites = kNone;     // the input whose bytes it took over
    bool is_leaf = false;          // can't be recomputed (opaque kernels)
  };
  struct Call {
    double cost = 0.0;
    bool is_backward = false;
    bool is_replayable = true;
    Temper temper = Temper::kExpensive;
  };
  using Chooser = Allocator::Chooser;

  static constexpr std::int32_t kMaxRetries = Recomputer::kMaxRetries;

  Engine(const EngineConfig& config, Host& host) : state_(config, host) {
    state_.tape.on_cell_gone = [this](CellId id) { releaser_.forget(id); };
    state_.tape.on_record_gone = [this](RecordId id) { state_.host.record_gone(id); };
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineConfig& config() const { return state_.config; }
  const EngineStats& stats() const { return state_.stats; }
  const pool::Pool& memory() const { return state_.memory; }
  Tape& tape() { return state_.tape; }
  const Cell& cell(CellId id) const { return state_.tape.cell(id); }
  double clock() const { return state_.clock; }
  std::int64_t peak_bytes() const { return state_.stats.peak_bytes; }
  void set_chooser(Chooser chooser) { allocator_.set_chooser(std::move(chooser)); }
  void set_log(std::vector<Event>* log) { state_.events = log; }
  void set_max_cost(double cost) { state_.config.max_cost = cost; }

  // ------------------------------------------------------------------ memory
  // Bytes for a running op: evicts when it must, never recomputes. Throws OutOfMemory.
  Spot allocate(std::int64_t size, Temper temper) { return allocator_.allocate(size, temper); }

  // Give back bytes that no cell owns (scratch, values that autograd drops inside an op).
  void free_spot(const Spot& spot, std::int64_t size) { state_.free_spot(spot, size); }

  // ------------------------------------------------------------------ one op
  // A cell that can't be recomputed, in bytes that are already there.
  CellId add_leaf(std::int64_t size, const Spot& spot) {
    const CellId id = state_.tape.add_cell(size);
    state_.settle_at(id, spot);
    state_.tape.cell(id).last_access = state_.clock;
    return id;
  }

  // Make every input resident and lock it; prepare what the op is about to mutate.
  void begin(std::span<const CellId> inputs, std::span<const CellId> mutated, bool is_replayable) {
    recomputer_.gather(inputs);
    for (const CellId id : inputs) ++state_.tape.cell(id).waits;
    try {
      for (const CellId id : mutated) mutator_.prepare(id, is_replayable);
    } catch (...) {
      for (const CellId id : inputs) --state_.tape.cell(id).waits;
      releaser_.unlock(inputs);
      mutator_.cancel_copies();
      throw;
    }
    for (const CellId id : inputs) --state_.tape.cell(id).waits;
  }

  // The op failed: give the locks back, as if it had not begun.
  void abort(std::span<const CellId> inputs) {
    mutator_.cancel_copies();
    releaser_.unlock(inputs);
  }

  // The op found no room, and has given back what it took: make a hole of `size` bytes by sliding blocks together, its
  // own inputs among them, so that it may be tried once more. False where that cannot be done.
  bool make_way(std::span<const CellId> inputs, std::int64_t size) { return allocator_.make_way(inputs, size); }

  // The op is done. Returns its record (kNone: none is needed); `cells` gets one cell per output.
  RecordId end(const Call& call, std::span<const CellId> inputs, std::span<const Output> outputs,
               std::vector<CellId>& cells) {
    state_.clock += call.cost;
    state_.stats.base_cost += call.cost;
    ++state_.stats.num_calls;
    bool has_recipe = call.is_replayable;
    std::int32_t depth = 0;
    for (const CellId input : inputs) {
      const RecordId above = state_.tape.cell(input).producer;
      if (above != kNone) depth = std::max(depth, state_.tape.record(above).depth + 1);
    }
    if (depth > state_.config.max_depth) has_recipe = false;
    for (const Output& output : outputs) {
      if (output.overwrites != kNone && state_.is_leaf(output.overwrites)) has_recipe = false;
    }
    cells.clear();
    recorded_.clear();
    overwrites_.clear();
    bool is_worth_recording = false;
    for (const Output& output : outputs) {
      const CellId id = state_.tape.add_cell(output.size);
      cells.push_back(id);
      Cell& fresh = state_.tape.cell(id);
      fresh.backward = call.is_backward;
      fresh.last_access = state_.clock;
      if (output.overwrites != kNone) {
        mutator_.take_over(output.overwrites, id);
      } else {
        state_.settle_at(id, output.spot);
      }
      const bool is_recorded = has_recipe && !output.is_leaf && state_.tape.cell(id).spot.home == Home::kPool;
      is_worth_recording |= is_recorded;
      recorded_.push_back(is_recorded ? id : kNone);
      overwrites_.push_back(output.overwrites);
    }
    RecordId record = kNone;
    if (is_worth_recording) {
      record = state_.tape.add_record(call.cost, inputs, recorded_, overwrites_);
      Record& kept = state_.tape.record(record);
      kept.backward = call.is_backward;
      kept.temper = static_cast<std::uint8_t>(call.temper);
      for (std::size_t index = 0; index < outputs.size(); ++index) kept.sizes[index] = outputs[index].size;
    }
    state_.log(EventKind::kCall, record, 0, 0);
    for (const Output& output : outputs) {
      if (output.overwrites != kNone) releaser_.settle(output.overwrites);
    }
    releaser_.unlock(inputs);
    return record;
  }

  // ------------------------------------------------------------------ one cell
  // The program's last reference to a cell is gone.
  void release(CellId id) {
    if (!state_.tape.cell(id).is_resident()) state_.count_absent(id, -1);
    state_.tape.cell(id).alive = false;
    releaser_.settle(id);
  }

  // The address of a cell escapes: make it resident, never evict or move it again.
  void pin(CellId id) {
    recomputer_.gather(std::span<const CellId>(&id, 1));
    state_.pin_block(id);
    releaser_.unlock(std::span<const CellId>(&id, 1));
  }

  // Undo one pin.
  void unpin(CellId id) {
    Cell& subject = state_.tape.cell(id);
    if (subject.pins == 0) throw std::logic_error("cell " + std::to_string(id) + " is not pinned");
    if (subject.spot.home == Home::kPool) state_.memory.unpin(subject.spot.block);
    --subject.pins;
    if (!subject.alive) releaser_.settle(id);
  }

  // Make a cell resident now.
  void materialize(CellId id) { recomputer_.materialize(id); }

  // The host has copied a cell's bytes out of the arena, where they stay.
  void move_out(CellId id) {
    const Spot spot = std::exchange(state_.tape.cell(id).spot, Spot{Home::kExternal, pool::kNone, -1});
    state_.free_spot(spot, state_.tape.cell(id).size);
  }

  // Evict a cell that may be.
  void evict(CellId id) { state_.evict(id); }

  bool is_leaf(CellId id) const { return state_.is_leaf(id); }
  bool may_evict(CellId id) const { return state_.may_evict(id); }
  double staleness(CellId id) const { return state_.staleness(id); }
  double projected_cost(CellId id) { return state_.tape.projected_cost(id); }
  double component_cost(CellId id) { return state_.components.cost(state_.tape, id); }
  double chance(CellId id) const { return state_.chance(id); }

  // Copy-on-write in progress: cells that an op is about to mutate, and the copies that it must mutate instead.
  std::span<const std::pair<CellId, Spot>> copies() const { return mutator_.copies(); }

  // For hosts that number their calls and cells: what they say is logged among the rest.
  void note(EventKind kind, std::int32_t id, std::int64_t name) { state_.log(kind, id, name, 0); }

 private:
  EngineState state_;
  Releaser releaser_{state_};
  Allocator allocator_{state_, releaser_};
  Recomputer recomputer_{state_, allocator_, releaser_};
  Mutator mutator_{state_, releaser_, allocator_, recomputer_};
  std::vector<CellId> recorded_, overwrites_;  // of the call that ends
};

}  // namespace lowtide::online
