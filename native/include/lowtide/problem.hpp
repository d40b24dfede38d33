// What the search sees of a graph: flat arrays over order positions and storages.
//
//   node    position in the given order, 0 .. num_nodes-1; stage t executes recomputations, then node t
//   storage bytes that aliasing values share; a fresh *copy* is made by each execution of its producer
//
//   nodes    0 ──▶ 1 ──▶ 2 ──▶ 3            stage 3 with one recomputation: 0, 3
//   events   (0,0) (1,1) (2,2) (3,0)(3,3)   event (stage, node), ordered by stage, then node
//
// Standard library only: neither Python nor torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lowtide {

// A problem whose arrays contradict each other; the text says which.
class ProblemError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Rows of different lengths in one array: row i is items[starts[i]] .. items[starts[i + 1]] (exclusive).
struct Rows {
  std::vector<std::int32_t> starts;
  std::vector<std::int32_t> items;

  struct Range {
    const std::int32_t* first;
    const std::int32_t* last;
    const std::int32_t* begin() const { return first; }
    const std::int32_t* end() const { return last; }
    bool empty() const { return first == last; }
  };
  Range operator[](std::int32_t row) const {
    return {items.data() + starts[row], items.data() + starts[row + 1]};
  }
};

// One recomputation: node `node` is executed in stage `stage`, before the stage's own node.
struct Recomputation {
  std::int32_t stage;
  std::int32_t node;
  friend bool operator==(const Recomputation&, const Recomputation&) = default;
  friend auto operator<=>(const Recomputation&, const Recomputation&) = default;
};

struct Problem {
  // Per node.
  std::vector<std::int64_t> duration;
  std::vector<std::int64_t> recompute_duration;         // what one recomputation costs (its views' share included)
  std::vector<std::int64_t> workspace_bytes;            // besides inputs and outputs, during every execution
  std::vector<std::int64_t> recompute_workspace_bytes;  // and during each recomputation, on top of that
  std::vector<std::int32_t> last_stage;                 // last stage where it may be recomputed; its own position: never
  Rows reads;                                           // storages read at every execution
  Rows recompute_reads;                                 // and at recomputations, without those of `reads`
  Rows writes;                                          // storages of which it makes a fresh copy
  // Per storage.
  std::vector<std::int64_t> size_bytes;
  std::vector<std::int32_t> producer;      // node, or -1: resident before the first step
  std::vector<std::uint8_t> is_recreated;  // whether each recomputation of the producer makes a fresh copy
  std::vector<std::uint8_t> is_kept;       // whether the last copy stays resident to the end
  Rows readers;                            // nodes that read it at every execution, ascending (derived)

  std::int32_t num_nodes() const { return static_cast<std::int32_t>(duration.size()); }
  std::int32_t num_storages() const { return static_cast<std::int32_t>(size_bytes.size()); }
  bool is_recomputable(std::int32_t node) const { return last_stage[node] > node; }

  // Check every array against the others and derive `writes` and `readers`; throws ProblemError.
  void finish() {
    check_lengths();
    check_rows("reads", reads);
    check_rows("recompute_reads", recompute_reads);
    writes = invert_producers();
    readers = invert_reads();
  }

 private:
  void check_lengths() const {
    const auto nodes = duration.size();
    const auto storages = size_bytes.size();
    if (nodes >= (1u << 30) || storages >= (1u << 30)) throw ProblemError("more than 2^30 nodes or storages");
    const auto same = [](const char* name, std::size_t found, std::size_t expected) {
      if (found != expected) {
        throw ProblemError(std::string(name) + " has " + std::to_string(found) + " items, expected " +
                           std::to_string(expected));
      }
    };
    same("recompute_duration", recompute_duration.size(), nodes);
    same("workspace_bytes", workspace_bytes.size(), nodes);
    same("recompute_workspace_bytes", recompute_workspace_bytes.size(), nodes);
    same("last_stage", last_stage.size(), nodes);
    same("producer", producer.size(), storages);
    same("is_recreated", is_recreated.size(), storages);
    same("is_kept", is_kept.size(), storages);
    for (std::size_t node = 0; node < nodes; ++node) {
      if (duration[node] < 0 || recompute_duration[node] < 0 || workspace_bytes[node] < 0 ||
          recompute_workspace_bytes[node] < 0) {
        throw ProblemError("node " + std::to_string(node) + " has a negative duration or size");
      }
      if (last_stage[node] < static_cast<std::int32_t>(node) || last_stage[node] >= static_cast<std::int32_t>(nodes)) {
        throw ProblemError("node " + std::to_string(node) + " has last_stage " + std::to_string(last_stage[node]));
      }
    }
    for (std::size_t storage = 0; storage < storages; ++storage) {
      if (size_bytes[storage] < 0) throw ProblemError("storage " + std::to_string(storage) + " has a negative size");
      if (producer[storage] < -1 || producer[storage] >= static_cast<std::int32_t>(nodes)) {
        throw ProblemError("storage " + std::to_string(storage) + " has producer " + std::to_string(producer[storage]));
      }
      if (producer[storage] < 0 && is_recreated[storage]) {
        throw ProblemError("storage " + std::to_string(storage) + " is recreated but has no producer");
      }
    }
  }

  void check_rows(const char* name, const Rows& rows) const {
    if (rows.starts.size() != duration.size() + 1 || rows.starts.front() != 0 ||
        rows.starts.back() != static_cast<std::int32_t>(rows.items.size()) ||
        !std::is_sorted(rows.starts.begin(), rows.starts.end())) {
      throw ProblemError(std::string(name) + " has bad row starts");
    }
    for (std::int32_t node = 0; node < num_nodes(); ++node) {
      for (const auto storage : rows[node]) {
        if (storage < 0 || storage >= num_storages()) {
          throw ProblemError(std::string(name) + " of node " + std::to_string(node) + " names storage " +
                             std::to_string(storage));
        }
        if (producer[storage] > node || (producer[storage] == node && is_recreated[storage])) {
          throw ProblemError(std::string(name) + " of node " + std::to_string(node) + " names storage " +
                             std::to_string(storage) + ", which is made later");
        }
      }
    }
  }

  Rows invert_producers() const {
    std::vector<std::vector<std::int32_t>> made(duration.size());
    for (std::int32_t storage = 0; storage < num_storages(); ++storage) {
      if (producer[storage] >= 0) made[producer[storage]].push_back(storage);
    }
    return flatten(made);
  }

  Rows invert_reads() const {
    std::vector<std::vector<std::int32_t>> nodes(size_bytes.size());
    for (std::int32_t node = 0; node < num_nodes(); ++node) {
      for (const auto storage : reads[node]) nodes[storage].push_back(node);
    }
    return flatten(nodes);
  }

  static Rows flatten(const std::vector<std::vector<std::int32_t>>& lists) {
    Rows rows;
    rows.starts.push_back(0);
    for (const auto& list : lists) {
      rows.items.insert(rows.items.end(), list.begin(), list.end());
      rows.starts.push_back(static_cast<std::int32_t>(rows.items.size()));
    }
    return rows;
  }
};

}  // namespace lowtide
