// The memory profile of a set of recomputations, kept up to date while recomputations come and go.
//
// Any set of pairs (stage, node before it) is a legal sequence, because every copy lives until its last use; only
// memory constrains. Kept per stage is its *load*, the most bytes resident at any of its events:
//
//   load(t) = present(t) - relief(t)
//   present(t)  bytes of all copies of which some event of the stage sees something
//   relief(t)   what the stage's fullest event does not see of that: copies born later or dead earlier in the stage
//
//   stage t with recomputations a < b        a      b      t
//   a's output, read by b and t              ■──────■──────■      present, no relief
//   b's output, read by t                           ■──────■      born later than a
//   an old value, last read by a             ■                    dead before b
//
// present changes over ranges of stages (a copy ends earlier, another lives longer); relief only in the stages where a
// copy is born or dies, and only stages with recomputations have one worth computing.
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/problem.hpp"
#include "lowtide/ranges.hpp"

namespace lowtide {

class Profile {
 public:
  Profile(const Problem& problem, std::int64_t budget_bytes)
      : problem_(problem),
        budget_bytes_(budget_bytes),
        executions_(problem.num_nodes()),
        recomputations_(problem.num_nodes()),
        uses_(problem.num_storages()),
        load_(problem.num_nodes(), 0),
        relief_(problem.num_nodes(), 0) {
    for (std::int32_t node = 0; node < problem.num_nodes(); ++node) {
      executions_[node].push_back(node);
      relief_[node] = -problem.workspace_bytes[node];
      load_[node] = problem.workspace_bytes[node];
    }
    for (std::int32_t storage = 0; storage < problem.num_storages(); ++storage) {
      for (const auto reader : problem.readers[storage]) uses_[storage].push_back(key(reader, reader));
      if (problem.is_kept[storage]) uses_[storage].push_back(key(problem.num_nodes(), 0));
      const Copy copy = copy_at(storage, problem.num_nodes());
      for (auto stage = copy.first; stage <= std::min(copy.last, problem.num_nodes() - 1); ++stage) {
        load_[stage] += problem.size_bytes[storage];
      }
    }
    for (const auto bytes : load_) overflow_bytes_ += std::max<std::int64_t>(bytes - budget_bytes_, 0);
  }

  // One copy of a storage: the stages [first, last] where it is resident, and the stage where the next one is made.
  // A storage that is resident from the start and that nobody reads has last == -1.
  struct Copy {
    std::int32_t first;
    std::int32_t last;
    std::int32_t next;
  };

  // The copy that an event in this stage would read (after the stage's own recomputations of its producer).
  Copy copy_at(std::int32_t storage, std::int32_t stage) const {
    const auto producer = problem_.producer[storage];
    std::int32_t first = std::max(producer, 0);
    std::int32_t next = problem_.num_nodes() + 1;
    if (problem_.is_recreated[storage]) {
      const auto& made = executions_[producer];
      const auto after = std::upper_bound(made.begin(), made.end(), stage);
      if (after != made.begin()) first = *(after - 1);
      if (after != made.end()) next = *after;
    }
    const auto& uses = uses_[storage];
    const auto end = std::lower_bound(uses.begin(), uses.end(), key(next, 0));
    const std::int32_t unread = producer < 0 ? -1 : first;
    const std::int32_t last = end == uses.begin() ? unread : std::max(unread, stage_of(*(end - 1)));
    return {first, last, next};
  }

  bool is_resident(std::int32_t storage, std::int32_t stage) const { return copy_at(storage, stage).last >= stage; }

  // Whether any event sees the copy of a storage that an execution in this stage makes.
  bool is_read(std::int32_t storage, std::int32_t stage) const {
    const auto& uses = uses_[storage];
    const auto use = std::lower_bound(uses.begin(), uses.end(), key(stage, 0));
    return use != uses.end() && *use < key(copy_at(storage, stage).next, 0);
  }

  bool has(std::int32_t stage, std::int32_t node) const {
    const auto& made = executions_[node];
    return std::binary_search(made.begin(), made.end(), stage);
  }

  bool may_insert(std::int32_t stage, std::int32_t node, std::int64_t max_copies) const {
    return stage > node && stage <= problem_.last_stage[node] && !has(stage, node) &&
           static_cast<std::int64_t>(executions_[node].size()) < max_copies;
  }

  // At least the overflow that inserting this recomputation takes away.
  std::int64_t most_released(std::int32_t stage, std::int32_t node) {
    std::int64_t most = 0;
    for (const auto storage : problem_.writes[node]) {
      const auto bytes = problem_.size_bytes[storage];
      if (!problem_.is_recreated[storage] || bytes == 0) continue;
      const Copy copy = copy_at(storage, stage);
      const auto first = last_use_before(storage, copy.first, stage) + 1;
      if (copy.last < stage || first >= stage) continue;
      most += overflow_of_removing(load_.data() + first, stage - first, bytes, budget_bytes_);
      work_ += stage - first;
    }
    return most;
  }

  // Execute `node` in `stage` too. Returns the overflow that its outputs' absence before the stage takes away; what
  // holding its inputs adds is already in overflow_bytes() as well.
  std::int64_t insert(std::int32_t stage, std::int32_t node) {
    dirty_.clear();
    const auto before = overflow_bytes_;
    for (const auto storage : problem_.writes[node]) {
      if (!problem_.is_recreated[storage]) continue;
      const Copy copy = copy_at(storage, stage);
      const auto last_before = last_use_before(storage, copy.first, stage);
      if (copy.last >= stage) {
        add(last_before + 1, stage - 1, -problem_.size_bytes[storage]);
      } else {
        add(stage, stage, problem_.size_bytes[storage]);
      }
      dirty_.push_back(last_before);
    }
    const auto released = before - overflow_bytes_;
    insert_sorted(executions_[node], stage);
    insert_sorted(recomputations_[stage], node);
    for_each_read(node, [&](std::int32_t storage) {
      const Copy copy = copy_at(storage, stage);
      insert_sorted(uses_[storage], key(stage, node));
      if (copy.last < stage) {
        add(copy.last + 1, stage, problem_.size_bytes[storage]);
        dirty_.push_back(copy.last);
      }
    });
    dirty_.push_back(stage);
    refresh_dirty();
    extra_duration_ += problem_.recompute_duration[node];
    ++num_recomputations_;
    return released;
  }

  // Undo an insert.
  void erase(std::int32_t stage, std::int32_t node) {
    dirty_.clear();
    for_each_read(node, [&](std::int32_t storage) {
      const auto last = copy_at(storage, stage).last;
      erase_sorted(uses_[storage], key(stage, node));
      const auto now = copy_at(storage, stage).last;
      if (now < last) {
        add(now + 1, last, -problem_.size_bytes[storage]);
        dirty_.push_back(now);
      }
    });
    for (const auto storage : problem_.writes[node]) {
      if (!problem_.is_recreated[storage]) continue;
      const auto next = copy_at(storage, stage).next;
      const auto before = copy_at(storage, stage - 1);
      const auto& uses = uses_[storage];
      const auto use = std::lower_bound(uses.begin(), uses.end(), key(stage, 0));
      if (use != uses.end() && *use < key(next, 0)) {
        add(before.last + 1, stage - 1, problem_.size_bytes[storage]);
      } else {
        add(stage, stage, -problem_.size_bytes[storage]);
      }
      dirty_.push_back(before.last);
    }
    erase_sorted(executions_[node], stage);
    erase_sorted(recomputations_[stage], node);
    dirty_.push_back(stage);
    refresh_dirty();
    extra_duration_ -= problem_.recompute_duration[node];
    --num_recomputations_;
  }

  template <typename Visit>
  void for_each_read(std::int32_t node, Visit visit) const {
    for (const auto storage : problem_.reads[node]) visit(storage);
    for (const auto storage : problem_.recompute_reads[node]) visit(storage);
  }

  std::vector<Recomputation> recomputations() const {
    std::vector<Recomputation> all;
    for (std::int32_t stage = 0; stage < problem_.num_nodes(); ++stage) {
      for (const auto node : recomputations_[stage]) all.push_back({stage, node});
    }
    return all;
  }

  std::int64_t peak_bytes() const { return load_.empty() ? 0 : *std::max_element(load_.begin(), load_.end()); }
  std::int64_t overflow_bytes() const { return overflow_bytes_; }
  std::int64_t budget_bytes() const { return budget_bytes_; }
  std::int64_t extra_duration() const { return extra_duration_; }
  std::int64_t num_recomputations() const { return num_recomputations_; }
  std::int64_t work() const { return work_; }
  void note_work(std::int64_t work) { work_ += work; }
  const std::vector<std::int64_t>& load_bytes() const { return load_; }
  const std::vector<std::int32_t>& recomputations_in(std::int32_t stage) const { return recomputations_[stage]; }
  const std::vector<std::int32_t>& executions_of(std::int32_t node) const { return executions_[node]; }
  const std::vector<std::int64_t>& uses_of(std::int32_t storage) const { return uses_[storage]; }
  static std::int32_t stage_of(std::int64_t use) { return static_cast<std::int32_t>(use >> 32); }

  // Overflow under another budget from now on.
  void set_budget(std::int64_t budget_bytes) {
    budget_bytes_ = budget_bytes;
    overflow_bytes_ = 0;
    for (const auto bytes : load_) overflow_bytes_ += std::max<std::int64_t>(bytes - budget_bytes_, 0);
  }

 private:
  static std::int64_t key(std::int32_t stage, std::int32_t node) {
    return (static_cast<std::int64_t>(stage) << 32) + node;
  }

  std::int32_t last_use_before(std::int32_t storage, std::int32_t first, std::int32_t stage) const {
    const auto& uses = uses_[storage];
    const auto end = std::lower_bound(uses.begin(), uses.end(), key(stage, 0));
    return end == uses.begin() ? first : std::max(first, stage_of(*(end - 1)));
  }

  template <typename Item>
  static void insert_sorted(std::vector<Item>& items, Item item) {
    items.insert(std::lower_bound(items.begin(), items.end(), item), item);
  }

  template <typename Item>
  static void erase_sorted(std::vector<Item>& items, Item item) {
    items.erase(std::lower_bound(items.begin(), items.end(), item));
  }

  void add(std::int32_t first, std::int32_t last, std::int64_t bytes) {
    last = std::min(last, problem_.num_nodes() - 1);
    if (bytes == 0 || first > last) return;
    overflow_bytes_ += add_bytes(load_.data() + first, last - first + 1, bytes, budget_bytes_);
    work_ += last - first + 1;
  }

  void refresh_dirty() {
    std::sort(dirty_.begin(), dirty_.end());
    dirty_.erase(std::unique(dirty_.begin(), dirty_.end()), dirty_.end());
    for (const auto stage : dirty_) {
      if (stage < 0 || stage >= problem_.num_nodes()) continue;
      const auto relief = relief_in(stage);
      if (relief == relief_[stage]) continue;
      add(stage, stage, relief_[stage] - relief);
      relief_[stage] = relief;
    }
  }

  // Whether the copy that event (stage, node) reads or makes is seen by no later event.
  bool dies_at(std::int32_t storage, std::int32_t stage, std::int32_t node) const {
    const auto& uses = uses_[storage];
    const auto later = std::upper_bound(uses.begin(), uses.end(), key(stage, node));
    if (later == uses.end()) return true;
    if (stage_of(*later) == stage || !problem_.is_recreated[storage]) return false;
    const auto& made = executions_[problem_.producer[storage]];
    const auto next = std::upper_bound(made.begin(), made.end(), stage);
    return next != made.end() && *later >= key(*next, 0);
  }

  std::int64_t relief_in(std::int32_t stage) {
    const auto& again = recomputations_[stage];
    if (again.empty()) return -problem_.workspace_bytes[stage];
    std::int64_t unborn = 0;
    const auto born_at = [&](std::int32_t node, bool is_again) {
      std::int64_t bytes = 0;
      for (const auto storage : problem_.writes[node]) {
        if (!is_again || problem_.is_recreated[storage]) bytes += problem_.size_bytes[storage];
      }
      return bytes;
    };
    const auto dead_after = [&](std::int32_t node, bool is_again) {
      std::int64_t bytes = 0;
      const auto count = [&](std::int32_t storage) {
        work_ += kWorkPerSearch;
        if (problem_.size_bytes[storage] && dies_at(storage, stage, node)) bytes += problem_.size_bytes[storage];
      };
      for (const auto storage : problem_.reads[node]) count(storage);
      if (is_again) {
        for (const auto storage : problem_.recompute_reads[node]) count(storage);
        for (const auto storage : problem_.writes[node]) {
          if (problem_.is_recreated[storage]) count(storage);
        }
      }
      return bytes;
    };
    unborn = born_at(stage, false);
    for (const auto node : again) unborn += born_at(node, true);
    std::int64_t dead = 0;
    std::int64_t least = INT64_MAX;
    for (const auto node : again) {
      unborn -= born_at(node, true);
      const auto scratch = problem_.workspace_bytes[node] + problem_.recompute_workspace_bytes[node];
      least = std::min(least, unborn + dead - scratch);
      dead += dead_after(node, true);
    }
    return std::min(least, dead - problem_.workspace_bytes[stage]);
  }

  static constexpr std::int64_t kWorkPerSearch = 16;  // a binary search or two take as long as so many stages

  const Problem& problem_;
  std::int64_t budget_bytes_;
  std::vector<std::vector<std::int32_t>> executions_;      // per node: stages, ascending, its own position first
  std::vector<std::vector<std::int32_t>> recomputations_;  // per stage: nodes, ascending
  std::vector<std::vector<std::int64_t>> uses_;            // per storage: keys of the events that read it, ascending
  std::vector<std::int64_t> load_;
  std::vector<std::int64_t> relief_;
  std::vector<std::int32_t> dirty_;
  std::int64_t overflow_bytes_ = 0;
  std::int64_t extra_duration_ = 0;
  std::int64_t num_recomputations_ = 0;
  std::int64_t work_ = 0;
};

}  // namespace lowtide
