// DTR's evicted components, kept by union-find (Kirisame et al., ICLR 2021, section 4.1 and appendix C, h_DTR^eq).
//
// Absent cells that depend on each other form a component whose cost is the sum of its members'. A cell that comes back
// takes its own cost along, but the component does not fall apart: that is the approximation. The exact sums are
// Tape::projected_cost (ancestors only, Coop) and Tape::neighborhood_cost (both directions, DTR).
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "lowtide/tape.hpp"

namespace lowtide::online {

class Components {
 public:
  // A cell has been evicted: it joins the components around it.
  void add(const Tape& tape, CellId id) {
    if (tape.cell(id).producer == kNone) return;
    const std::int32_t fresh = make_set(cost_of(tape, id));
    member(id) = fresh;
    for_each_neighbour(tape, id, [&](CellId other) {
      if (!tape.cell(other).is_resident() && member(other) != kNone) unite(fresh, member(other));
    });
  }

  // A cell is back.
  void remove(const Tape& tape, CellId id) {
    if (member(id) == kNone) return;
    cost_[static_cast<std::size_t>(find(member(id)))] -= cost_of(tape, id);
    member(id) = kNone;
  }

  // A cell that is gone for good: its number may be given to another.
  void forget(CellId id) { member(id) = kNone; }

  // A cell's own cost and that of every component that touches it.
  double cost(const Tape& tape, CellId id) {
    double total = cost_of(tape, id);
    seen_.clear();
    for_each_neighbour(tape, id, [&](CellId other) {
      if (tape.cell(other).is_resident() || member(other) == kNone) return;
      const std::int32_t root = find(member(other));
      if (std::find(seen_.begin(), seen_.end(), root) != seen_.end()) return;
      seen_.push_back(root);
      total += cost_[static_cast<std::size_t>(root)];
    });
    return total;
  }

 private:
  std::vector<std::int32_t> member_;  // set of a cell, by cell
  std::vector<std::int32_t> parent_;  // by set
  std::vector<double> cost_;          // by set, valid at roots
  std::vector<std::int32_t> seen_;

  static double cost_of(const Tape& tape, CellId id) {
    const RecordId producer = tape.cell(id).producer;
    return producer == kNone ? 0.0 : tape.record(producer).cost;
  }

  std::int32_t& member(CellId id) {
    if (static_cast<std::size_t>(id) >= member_.size()) member_.resize(static_cast<std::size_t>(id) + 1, kNone);
    return member_[static_cast<std::size_t>(id)];
  }

  std::int32_t make_set(double cost) {
    parent_.push_back(static_cast<std::int32_t>(parent_.size()));
    cost_.push_back(cost);
    return parent_.back();
  }

  std::int32_t find(std::int32_t set) {
    while (parent_[static_cast<std::size_t>(set)] != set) {
      std::int32_t& above = parent_[static_cast<std::size_t>(set)];
      above = parent_[static_cast<std::size_t>(above)];
      set = above;
    }
    return set;
  }

  void unite(std::int32_t first, std::int32_t second) {
    first = find(first);
    second = find(second);
    if (first == second) return;
    parent_[static_cast<std::size_t>(second)] = first;
    cost_[static_cast<std::size_t>(first)] += cost_[static_cast<std::size_t>(second)];
  }

  template <typename Visit>
  static void for_each_neighbour(const Tape& tape, CellId id, Visit&& visit) {
    const RecordId producer = tape.cell(id).producer;
    if (producer != kNone) {
      for (const CellId input : tape.record(producer).inputs) visit(input);
    }
    for (const RecordId consumer : tape.cell(id).consumers) {
      for (const CellId output : tape.record(consumer).outputs) {
        if (output != kNone) visit(output);
      }
    }
  }
};

}  // namespace lowtide::online
