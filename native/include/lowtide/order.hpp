// Simulated annealing over topological orders: less overflow, without recomputation.
//
// A move takes one node out and puts it in elsewhere between its predecessors and its successors. Only the loads of the
// stages between the two places change:
//
//   before   .. a [m] b c d ..        m moves behind c; b and c come one stage earlier
//   after    .. a b c [m] d ..        loads of these three stages are computed again, from what is resident before them
//
// Energy: the overflow above the budget, summed over stages. Without overflow there is nothing left to do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lowtide/greedy.hpp"
#include "lowtide/problem.hpp"

namespace lowtide {

struct OrderOptions {
  std::int64_t budget_bytes = 0;
  std::uint64_t seed = 0;
  std::int64_t max_work = 0;
  double hottest = 3.0;  // temperature at the start, in mean sizes of a storage
  double coldest = 0.03;
};

struct OrderOutcome {
  std::vector<std::int32_t> order;  // nodes (positions in the given order), as they are to be executed
  std::int64_t overflow_bytes = 0;  // summed over stages
  std::int64_t peak_bytes = 0;
};

class Order {
 public:
  // `precedence`: pairs (node, node that must come later) beyond what the reads imply.
  Order(const Problem& problem, OrderOptions options,
        const std::vector<std::pair<std::int32_t, std::int32_t>>& precedence, std::function<bool()> should_stop)
      : problem_(problem),
        options_(options),
        should_stop_(std::move(should_stop)),
        random_(options.seed),
        before_(problem.num_nodes()),
        after_(problem.num_nodes()),
        at_(problem.num_nodes()),
        place_(problem.num_nodes()),
        last_reader_(problem.num_storages(), -1),
        load_(problem.num_nodes(), 0) {
    for (std::int32_t node = 0; node < problem.num_nodes(); ++node) {
      at_[node] = place_[node] = node;
      for (const auto storage : problem.reads[node]) precede(problem.producer[storage], node);
    }
    for (const auto& [first, second] : precedence) {
      if (first < 0 || first >= second || second >= problem.num_nodes()) {
        throw ProblemError("node " + std::to_string(second) + " cannot come after node " + std::to_string(first));
      }
      precede(first, second);
    }
    double total = 0;
    for (std::int32_t storage = 0; storage < problem.num_storages(); ++storage) {
      for (const auto reader : problem.readers[storage]) last_reader_[storage] = reader;
      total += static_cast<double>(problem.size_bytes[storage]);
    }
    mean_bytes_ = std::max(1e-3, total / std::max(1, problem.num_storages()));
    for (std::int32_t storage = 0; storage < problem.num_storages(); ++storage) {
      if (problem.producer[storage] < 0 && is_alive_before(storage, 0)) from_start_ += problem.size_bytes[storage];
    }
    overflow_ = refresh(0, problem.num_nodes() - 1);
    note_best();
  }

  OrderOutcome run() {
    const double cooling = std::log(options_.coldest / options_.hottest);
    for (std::uint64_t move = 0; best_overflow_ > 0 && problem_.num_nodes() > 1; ++move) {
      if (move % kMovesPerCheck == 0) {
        const double share = static_cast<double>(work_) / static_cast<double>(std::max<std::int64_t>(1, options_.max_work));
        if (share >= 1.0 || (move % (kMovesPerCheck * 64) == 0 && should_stop_ && should_stop_())) break;
        temperature_ = mean_bytes_ * options_.hottest * std::exp(cooling * share);
      }
      step();
    }
    OrderOutcome outcome;
    outcome.order = best_;
    outcome.overflow_bytes = best_overflow_;
    outcome.peak_bytes = best_peak_bytes_;
    return outcome;
  }

 private:
  void precede(std::int32_t first, std::int32_t second) {
    if (first < 0 || first == second) return;
    after_[first].push_back(second);
    before_[second].push_back(first);
  }

  void step() {
    work_ += kWorkPerMove;
    const auto node = static_cast<std::int32_t>(random_.below(static_cast<std::size_t>(problem_.num_nodes())));
    const auto from = place_[node];
    const auto reach = kReaches[random_.below(std::size(kReaches))];
    std::int32_t low = std::max(0, from - reach);
    std::int32_t high = std::min(problem_.num_nodes() - 1, from + reach);
    for (const auto other : before_[node]) low = std::max(low, place_[other] + 1);
    for (const auto other : after_[node]) high = std::min(high, place_[other] - 1);
    if (low >= high) return;
    auto to = low + static_cast<std::int32_t>(random_.below(static_cast<std::size_t>(high - low)));
    if (to >= from) ++to;
    const double bar = -temperature_ * std::log(1.0 - random_.unit());
    const auto before = overflow_;
    const auto first = std::min(from, to);
    const auto last = std::max(from, to);
    saved_.assign(load_.begin() + first, load_.begin() + last + 1);
    move(node, from, to);
    overflow_ += refresh(first, last) - overflow_of(saved_);
    if (static_cast<double>(overflow_ - before) > bar) {
      move(node, to, from);
      std::copy(saved_.begin(), saved_.end(), load_.begin() + first);
      overflow_ = before;
    } else if (overflow_ < best_overflow_) {
      note_best();
    }
  }

  void move(std::int32_t node, std::int32_t from, std::int32_t to) {
    if (from < to) {
      std::rotate(at_.begin() + from, at_.begin() + from + 1, at_.begin() + to + 1);
    } else {
      std::rotate(at_.begin() + to, at_.begin() + from, at_.begin() + from + 1);
    }
    for (auto place = std::min(from, to); place <= std::max(from, to); ++place) place_[at_[place]] = place;
    for (const auto storage : problem_.reads[node]) {
      auto last = problem_.readers[storage].begin()[0];
      for (const auto reader : problem_.readers[storage]) {
        if (place_[reader] > place_[last]) last = reader;
      }
      last_reader_[storage] = last;
    }
  }

  // Whether a storage that is resident from the start is so when the node in `place` runs.
  bool is_alive_before(std::int32_t storage, std::int32_t place) const {
    return problem_.is_kept[storage] || (last_reader_[storage] >= 0 && place_[last_reader_[storage]] >= place);
  }

  // Compute the loads of these stages from what is resident before them; returns their overflow.
  std::int64_t refresh(std::int32_t first, std::int32_t last) {
    std::int64_t resident = first == 0 ? from_start_ : resident_after(first - 1);
    std::int64_t overflow = 0;
    for (auto place = first; place <= last; ++place) {
      const auto node = at_[place];
      for (const auto storage : problem_.writes[node]) resident += problem_.size_bytes[storage];
      load_[place] = resident + problem_.workspace_bytes[node];
      overflow += std::max<std::int64_t>(load_[place] - options_.budget_bytes, 0);
      resident -= dying_at(place);
    }
    work_ += (last - first + 1) * 4;
    return overflow;
  }

  std::int64_t resident_after(std::int32_t place) const {
    return load_[place] - problem_.workspace_bytes[at_[place]] - dying_at(place);
  }

  std::int64_t dying_at(std::int32_t place) const {
    const auto node = at_[place];
    std::int64_t bytes = 0;
    for (const auto storage : problem_.reads[node]) {
      if (last_reader_[storage] == node && !problem_.is_kept[storage]) bytes += problem_.size_bytes[storage];
    }
    for (const auto storage : problem_.writes[node]) {
      if (last_reader_[storage] < 0 && !problem_.is_kept[storage]) bytes += problem_.size_bytes[storage];
    }
    return bytes;
  }

  std::int64_t overflow_of(const std::vector<std::int64_t>& load) const {
    std::int64_t overflow = 0;
    for (const auto bytes : load) overflow += std::max<std::int64_t>(bytes - options_.budget_bytes, 0);
    return overflow;
  }

  void note_best() {
    best_ = at_;
    best_overflow_ = overflow_;
    best_peak_bytes_ = load_.empty() ? 0 : *std::max_element(load_.begin(), load_.end());
  }

  static constexpr std::uint64_t kMovesPerCheck = 64;
  static constexpr std::int64_t kWorkPerMove = 64;
  static constexpr std::int32_t kReaches[] = {4, 16, 64, 1024};

  const Problem& problem_;
  OrderOptions options_;
  std::function<bool()> should_stop_;
  Random random_;
  std::vector<std::vector<std::int32_t>> before_;
  std::vector<std::vector<std::int32_t>> after_;
  std::vector<std::int32_t> at_;           // node in each place
  std::vector<std::int32_t> place_;        // place of each node
  std::vector<std::int32_t> last_reader_;  // per storage: node, or -1
  std::vector<std::int64_t> load_;         // per place
  std::vector<std::int64_t> saved_;
  std::vector<std::int32_t> best_;
  std::int64_t best_overflow_ = 0;
  std::int64_t best_peak_bytes_ = 0;
  std::int64_t overflow_ = 0;
  std::int64_t from_start_ = 0;
  std::int64_t work_ = 0;
  double mean_bytes_ = 1;
  double temperature_ = 1;
};

}  // namespace lowtide
