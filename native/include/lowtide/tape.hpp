// What was computed, and how to compute it again: cells, the records that made them, and what recomputing costs now.
//
//   record  r0 ──▶ cell a ──▶ r1 ──▶ cell b          a cell is one version of a storage's contents (SSA form):
//                       └────▶ r2 (in place) ─▶ a'   an op in place makes a new cell that takes over the bytes; the old
//                                                    version, a ghost, can come back by recomputation only
//
// A record lives as long as one of its outputs does; a cell lives while the program holds it or a living record reads
// it ("dead but needed"). Everything is destroyed iteratively: chains may be long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lowtide/pool.hpp"

namespace lowtide::online {

using CellId = std::int32_t;
using RecordId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

// Where a cell's bytes are.
enum class Home : std::uint8_t {
  kAbsent,    // evicted, or not computed yet
  kPool,      // a block of the pool
  kSmall,     // the region of small requests: never evicted
  kExternal,  // memory that is not ours (parameters made before, copies taken out): always resident, counts nothing
};

struct Spot {
  Home home = Home::kAbsent;
  pool::BlockId block = pool::kNone;
  std::int64_t offset = -1;
};

// What searches ask of every cell comes first, so that they touch one line of the cache for each.
struct alignas(64) Cell {
  double cost = 0.0;
  double last_access = 0.0;
  RecordId producer = kNone;  // kNone: a leaf, which can't be recomputed
  std::int32_t locks = 0;     // an op in progress uses it
  std::int32_t waits = 0;     // ... of these, by ops that have not begun: it must stay, but may move
  std::int32_t pins = 0;      // never evict (its address has escaped)
  Spot spot;
  bool exists = false;
  bool alive = false;          // the program (or autograd) holds its storage
  bool backward = false;       // made inside backward: evicted last
  bool is_cost_known = false;  // `cost` is what recomputing it costs now
  bool is_watched = false;     // absent, and some known cost downstream counts it
  std::int32_t awaited = 0;    // records about to be recomputed that read it
  std::int64_t size = 0;
  std::int64_t kept_bytes = 0;        // of leaves that the program dropped, kept for its recipe
  std::int32_t output_index = 0;
  std::int32_t zombie_index = kNone;  // among the engine's leaves that the program dropped and living records read
  std::vector<RecordId> consumers;  // living records that read it

  bool is_resident() const { return spot.home != Home::kAbsent; }
};

struct Record {
  double cost = 0.0;
  std::vector<CellId> inputs;  // distinct
  std::uint32_t stamp = 0;     // of the walk that came by last
  bool exists = false;
  bool backward = false;
  bool is_awaited = false;  // about to be recomputed
  std::uint8_t temper = 0;  // where its outputs belong in the pool; see engine_config.hpp
  std::int32_t living_outputs = 0;
  std::int32_t depth = 0;           // longest chain of records above it
  std::uint32_t session = 0;        // the recomputation that executed it last
  std::int32_t rounds = 0;          // how often that did
  std::vector<CellId> outputs;      // kNone: that output is gone
  std::vector<CellId> overwrites;   // per output: the input whose bytes it takes over, or kNone
  std::vector<std::int64_t> sizes;  // of each output, bytes
};

class Tape {
 public:
  // Called before a cell's bytes are forgotten, and after a record is.
  std::function<void(CellId)> on_cell_gone = [](CellId) {};
  std::function<void(RecordId)> on_record_gone = [](RecordId) {};

  Cell& cell(CellId id) { return cells_[static_cast<std::size_t>(id)]; }
  const Cell& cell(CellId id) const { return cells_[static_cast<std::size_t>(id)]; }
  Record& record(RecordId id) { return records_[static_cast<std::size_t>(id)]; }
  const Record& record(RecordId id) const { return records_[static_cast<std::size_t>(id)]; }
  std::size_t num_cells() const { return cells_.size() - free_cells_.size(); }
  std::size_t num_records() const { return records_.size() - free_records_.size(); }
  std::size_t cells_capacity() const { return cells_.size(); }
  std::size_t records_capacity() const { return records_.size(); }

  CellId add_cell(std::int64_t size) {
    const CellId id = take(cells_, free_cells_);
    Cell& fresh = cell(id);
    std::vector<RecordId> consumers = std::move(fresh.consumers);  // for its memory
    consumers.clear();
    fresh = Cell{};
    fresh.consumers = std::move(consumers);
    fresh.size = size;
    fresh.exists = true;
    fresh.alive = true;
    return id;
  }

  // A record that made `outputs` (kNone: one that needs no recipe) out of `inputs` (distinct).
  RecordId add_record(double cost, std::span<const CellId> inputs, std::span<const CellId> outputs,
                      std::span<const CellId> overwrites) {
    const RecordId id = take(records_, free_records_);
    Record& fresh = record(id);  // one that is used again keeps its vectors' memory, and its stamp
    fresh.exists = true;
    fresh.is_awaited = fresh.backward = false;
    fresh.temper = 0;
    fresh.depth = fresh.living_outputs = 0;
    fresh.session = 0;
    fresh.cost = cost;
    fresh.inputs.assign(inputs.begin(), inputs.end());
    fresh.outputs.assign(outputs.begin(), outputs.end());
    fresh.overwrites.assign(overwrites.begin(), overwrites.end());
    fresh.sizes.assign(fresh.outputs.size(), 0);
    for (const CellId input : fresh.inputs) {
      cell(input).consumers.push_back(id);
      const RecordId above = cell(input).producer;
      if (above != kNone) fresh.depth = std::max(fresh.depth, record(above).depth + 1);
    }
    for (std::size_t index = 0; index < fresh.outputs.size(); ++index) {
      if (fresh.outputs[index] == kNone) continue;
      Cell& output = cell(fresh.outputs[index]);
      output.producer = id;
      output.output_index = static_cast<std::int32_t>(index);
      fresh.sizes[index] = output.size;
      ++fresh.living_outputs;
    }
    return id;
  }

  // Cut a cell from its recipe: it is a leaf from now on.
  void make_leaf(CellId id) {
    Cell& subject = cell(id);
    const RecordId producer = subject.producer;
    if (producer == kNone) return;
    subject.producer = kNone;
    record(producer).outputs[static_cast<std::size_t>(subject.output_index)] = kNone;
    drop_output(producer);
    sweep();
  }

  // Destroy a cell that nobody holds or needs, and whatever nobody needs after that.
  void collect(CellId id) {
    pending_.push_back(id);
    sweep();
  }

  // Note that `target` is about to be recomputed, with all its absent ancestors; `awaited` gets the records.
  void await(CellId target, std::vector<RecordId>& awaited) {
    stack_.clear();
    stack_.push_back(cell(target).producer);
    while (!stack_.empty()) {
      const RecordId id = stack_.back();
      stack_.pop_back();
      if (id == kNone || record(id).is_awaited) continue;
      record(id).is_awaited = true;
      awaited.push_back(id);
      for (const CellId input : record(id).inputs) {
        ++cell(input).awaited;
        if (!cell(input).is_resident()) stack_.push_back(cell(input).producer);
      }
    }
  }

  // A record has been recomputed, or will not be after all.
  void stop_awaiting(RecordId id) {
    if (!record(id).exists || !record(id).is_awaited) return;
    record(id).is_awaited = false;
    for (const CellId input : record(id).inputs) --cell(input).awaited;
  }

  bool is_unneeded(CellId id) const {
    const Cell& subject = cell(id);
    return subject.exists && !subject.alive && subject.consumers.empty() && subject.locks == 0 && subject.pins == 0;
  }

  // ------------------------------------------------------------------ projected cost
  // What recomputing a cell costs now: its record and every absent ancestor's, each once.
  double projected_cost(CellId id) { return cell(id).is_cost_known ? cell(id).cost : add_up_cost(id); }

  // DTR's exact measure: projected cost, and that of every absent descendant as well.
  double neighborhood_cost(CellId id) {
    double total = projected_cost(id);
    cell_stack_.clear();
    cell_stack_.push_back(id);
    ++stamp_;
    while (!cell_stack_.empty()) {
      const CellId current = cell_stack_.back();
      cell_stack_.pop_back();
      for (const RecordId consumer : cell(current).consumers) {
        Record& reader = record(consumer);
        if (reader.stamp == stamp_) continue;
        reader.stamp = stamp_;
        bool is_absent = false;
        for (const CellId output : reader.outputs) {
          if (output == kNone || cell(output).is_resident()) continue;
          is_absent = true;
          cell_stack_.push_back(output);
        }
        if (is_absent) total += reader.cost;
      }
    }
    return total;
  }

  // A cell has come or gone: forget the costs that counted it. Stops where nobody has looked since.
  void forget_costs(CellId changed) {
    if (!has_costs_) return;
    cell(changed).is_cost_known = false;
    cell(changed).is_watched = false;
    cell_stack_.clear();
    cell_stack_.push_back(changed);
    while (!cell_stack_.empty()) {
      const CellId current = cell_stack_.back();
      cell_stack_.pop_back();
      for (const RecordId consumer : cell(current).consumers) {
        for (const CellId output : record(consumer).outputs) {
          if (output == kNone) continue;
          Cell& below = cell(output);
          if (below.is_resident()) {
            below.is_cost_known = false;
          } else if (below.is_watched) {
            below.is_watched = false;
            cell_stack_.push_back(output);
          }
        }
      }
    }
  }

  // Cells held by the program that are computed from `leaf` through cells that it does not hold.
  std::vector<CellId> live_frontier(CellId leaf) {
    ++stamp_;
    std::vector<CellId> frontier;
    cell_stack_.clear();
    cell_stack_.push_back(leaf);
    while (!cell_stack_.empty()) {
      const CellId current = cell_stack_.back();
      cell_stack_.pop_back();
      for (const RecordId consumer : cell(current).consumers) {
        Record& reader = record(consumer);
        if (reader.stamp == stamp_) continue;
        reader.stamp = stamp_;
        for (const CellId output : reader.outputs) {
          if (output == kNone) continue;
          (cell(output).alive ? frontier : cell_stack_).push_back(output);
        }
      }
    }
    return frontier;
  }

 private:
  std::vector<Cell> cells_;
  std::vector<Record> records_;
  std::vector<CellId> free_cells_;
  std::vector<RecordId> free_records_;
  std::vector<CellId> pending_;
  std::vector<RecordId> stack_;
  std::vector<CellId> cell_stack_;
  std::uint32_t stamp_ = 0;
  bool is_sweeping_ = false;
  bool has_costs_ = false;  // somebody has asked for one

  template <typename T>
  static std::int32_t take(std::vector<T>& all, std::vector<std::int32_t>& unused) {
    if (unused.empty()) {
      all.emplace_back();
      return static_cast<std::int32_t>(all.size()) - 1;
    }
    const std::int32_t id = unused.back();
    unused.pop_back();
    return id;
  }

  void sweep() {
    if (is_sweeping_) return;  // a callback may collect more: the outer loop will see it
    is_sweeping_ = true;
    while (!pending_.empty()) {
      const CellId id = pending_.back();
      pending_.pop_back();
      if (!is_unneeded(id)) continue;
      on_cell_gone(id);
      Cell& subject = cell(id);
      subject.exists = false;
      const RecordId producer = subject.producer;
      subject.producer = kNone;
      free_cells_.push_back(id);
      if (producer == kNone) continue;
      record(producer).outputs[static_cast<std::size_t>(cell(id).output_index)] = kNone;
      drop_output(producer);
    }
    is_sweeping_ = false;
  }

  double add_up_cost(CellId id) {
    has_costs_ = true;
    Cell& subject = cell(id);
    ++stamp_;
    double total = 0.0;
    stack_.clear();
    stack_.push_back(subject.producer);
    while (!stack_.empty()) {
      const RecordId current = stack_.back();
      stack_.pop_back();
      if (current == kNone) continue;
      Record& visited = record(current);
      if (visited.stamp == stamp_) continue;
      visited.stamp = stamp_;
      total += visited.cost;
      for (const CellId input : visited.inputs) {
        Cell& above = cell(input);
        if (above.is_resident()) continue;
        above.is_watched = true;
        stack_.push_back(above.producer);
      }
    }
    subject.cost = total;
    subject.is_cost_known = true;
    return total;
  }

  void drop_output(RecordId id) {
    Record& maker = record(id);
    if (--maker.living_outputs > 0) return;
    for (const CellId input : maker.inputs) {
      std::vector<RecordId>& readers = cell(input).consumers;
      for (std::size_t index = 0; index < readers.size(); ++index) {
        if (readers[index] != id) continue;
        readers[index] = readers.back();
        readers.pop_back();
        break;
      }
      pending_.push_back(input);
    }
    maker.exists = false;
    on_record_gone(id);
    free_records_.push_back(id);
  }
};

}  // namespace lowtide::online
