// Simulated annealing over sets of recomputations.
//
// State: any set of pairs (stage, node before it); energy: extra duration + price * overflow, the price of a byte above
// the budget in one stage. A move adds a recomputation with a cascade over its dead inputs, takes one out with whatever
// only it needed, or moves one to another stage. The price follows the state: it rises while something overflows and
// falls while all fits, so that the walk keeps to the rim of the budget (strategic oscillation, Glover 1977), while the
// temperature falls geometrically.
//
// The bar that a move must clear is drawn first (Metropolis et al. 1953, solved for the energy): what cannot clear it
// by its cost alone is rejected before the profile is touched. Work is counted in stages touched and moves drawn.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "lowtide/greedy.hpp"
#include "lowtide/problem.hpp"
#include "lowtide/profile.hpp"

namespace lowtide {

struct AnnealOptions {
  std::int64_t budget_bytes = 0;
  std::uint64_t seed = 0;
  std::int64_t max_copies = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_work = 0;
  double hottest = 1.0;  // temperature at the start, in mean durations of a recomputation
  double coldest = 0.01;
  double price_step = 1.01;  // factor per 64 moves
};

struct AnnealHooks {
  std::function<bool()> should_stop;  // asked every few thousand moves
  // A better plan that fits, and its extra duration.
  std::function<void(const std::vector<Recomputation>&, std::int64_t)> on_better;
};

class Anneal {
 public:
  Anneal(const Problem& problem, AnnealOptions options, AnnealHooks hooks)
      : problem_(problem),
        options_(options),
        hooks_(std::move(hooks)),
        profile_(problem, options.budget_bytes),
        random_(options.seed) {
    double total = 0;
    for (std::int32_t storage = 0; storage < problem.num_storages(); ++storage) {
      const auto node = problem.producer[storage];
      if (node < 0 || !problem.is_recreated[storage] || !problem.is_recomputable(node)) continue;
      if (problem.size_bytes[storage] == 0) continue;
      candidates_.push_back(storage);
      total += static_cast<double>(problem.recompute_duration[node]);
    }
    mean_cost_ = std::max(1e-3, total / static_cast<double>(std::max<std::size_t>(1, candidates_.size())));
  }

  // Anneal from `start`. The best plan met is best(), if has_best().
  void run(const std::vector<Recomputation>& start) {
    for (const auto r : start) put(r);
    note_state();
    price_ = first_price(!start.empty());
    const double cooling = std::log(options_.coldest / options_.hottest);
    const auto first_work = work();
    for (std::uint64_t move = 0; !candidates_.empty(); ++move) {
      if (move % kMovesPerCheck == 0) {
        const double share = static_cast<double>(work() - first_work) / static_cast<double>(options_.max_work);
        if (share >= 1.0 || (move % (kMovesPerCheck * 64) == 0 && hooks_.should_stop && hooks_.should_stop())) break;
        temperature_ = mean_cost_ * options_.hottest * std::exp(cooling * share);
        price_ *= profile_.overflow_bytes() > 0 ? options_.price_step : 1.0 / options_.price_step;
      }
      ++num_moves_;
      journal_.clear();
      bar_ = -temperature_ * std::log(1.0 - random_.unit());
      energy_ = energy();
      const auto kind = random_.below(8);
      if (chosen_.empty() || kind < 4) {
        add();
      } else if (kind < 7) {
        remove();
      } else {
        shift();
      }
    }
  }

  bool has_best() const { return has_best_; }
  const std::vector<Recomputation>& best() const { return best_; }
  std::int64_t best_extra_duration() const { return best_extra_duration_; }
  std::int64_t work() const { return profile_.work() + static_cast<std::int64_t>(num_moves_) * kWorkPerMove; }
  std::uint64_t num_moves() const { return num_moves_; }
  std::uint64_t num_accepted() const { return num_accepted_; }
  double price() const { return price_; }
  double mean_cost() const { return mean_cost_; }
  const Profile& profile() const { return profile_; }

 private:
  double energy() const {
    return static_cast<double>(profile_.extra_duration()) + price_ * static_cast<double>(profile_.overflow_bytes());
  }

  // What a mean recomputation costs, over the overflow that a mean storage could take away: in many stages where the
  // walk begins with nothing, in one where it begins with a plan that is not to be lost at once.
  double first_price(bool is_planned) const {
    double bytes = 0;
    for (const auto storage : candidates_) bytes += static_cast<double>(problem_.size_bytes[storage]);
    const double mean_bytes = std::max(1.0, bytes / static_cast<double>(std::max<std::size_t>(1, candidates_.size())));
    return mean_cost_ / mean_bytes / (is_planned ? 0.1 : std::max(1.0, 0.1 * problem_.num_nodes()));
  }

  // ---------------------------------------------------------------- changes, kept in a journal and in a list
  struct Change {
    Recomputation what;
    bool is_insert;
  };

  static std::int64_t key(Recomputation r) { return (static_cast<std::int64_t>(r.stage) << 32) + r.node; }

  void put(Recomputation r) {
    profile_.insert(r.stage, r.node);
    index_[key(r)] = chosen_.size();
    chosen_.push_back(r);
  }

  void take(Recomputation r) {
    profile_.erase(r.stage, r.node);
    const auto found = index_.find(key(r));
    const auto place = found->second;
    index_.erase(found);
    if (place + 1 != chosen_.size()) {
      chosen_[place] = chosen_.back();
      index_[key(chosen_[place])] = place;
    }
    chosen_.pop_back();
  }

  void insert(Recomputation r) {
    journal_.push_back({r, true});
    put(r);
  }

  void erase(Recomputation r) {
    journal_.push_back({r, false});
    take(r);
  }

  void rewind() {
    while (!journal_.empty()) {
      const Change change = journal_.back();
      journal_.pop_back();
      change.is_insert ? take(change.what) : put(change.what);
    }
  }

  void decide() {
    if (energy() - energy_ > bar_) {
      rewind();
      return;
    }
    if (journal_.empty()) return;
    ++num_accepted_;
    note_state();
  }

  void note_state() {
    if (profile_.overflow_bytes() > 0) return;
    if (has_best_ && profile_.extra_duration() >= best_extra_duration_) return;
    has_best_ = true;
    best_ = chosen_;
    std::sort(best_.begin(), best_.end());
    best_extra_duration_ = profile_.extra_duration();
    if (hooks_.on_better) hooks_.on_better(best_, best_extra_duration_);
  }

  // ---------------------------------------------------------------- moves
  // Recompute a storage before one of its uses, or somewhere in the gap before that.
  void add() {
    const auto storage = candidates_[random_.below(candidates_.size())];
    const auto node = problem_.producer[storage];
    const auto& uses = profile_.uses_of(storage);
    if (uses.empty()) return;
    const auto place = random_.below(uses.size());
    auto stage = std::min(Profile::stage_of(uses[place]), problem_.num_nodes() - 1);
    std::int32_t previous = node;
    if (place > 0) previous = std::max(previous, Profile::stage_of(uses[place - 1]));
    if (stage - previous < 2) return;
    const auto where = random_.below(8);
    if (where == 0) {
      stage = previous + 1 + static_cast<std::int32_t>(random_.below(static_cast<std::size_t>(stage - previous)));
    } else if (where < 3) {
      stage = while_inputs_live(node, previous, stage);
    }
    if (!profile_.may_insert(stage, node, options_.max_copies)) return;
    const double cost = cost_of(node);
    const double most = price_ * static_cast<double>(profile_.overflow_bytes());
    if (cost - most > bar_) return;
    if (cost - price_ * static_cast<double>(profile_.most_released(stage, node)) > bar_) return;
    insert_with_inputs({stage, node});
    decide();
  }

  // The last stage before `stage` where some dead input of the node is still alive.
  std::int32_t while_inputs_live(std::int32_t node, std::int32_t previous, std::int32_t stage) const {
    std::int32_t alive = stage;
    profile_.for_each_read(node, [&](std::int32_t storage) {
      const auto last = profile_.copy_at(storage, stage).last;
      if (last < alive && last > previous && problem_.size_bytes[storage] > 0) alive = last;
    });
    return alive;
  }

  // Insert, and for every input that is dead by then hold it or recompute it too, whichever looks cheaper.
  void insert_with_inputs(Recomputation first) {
    pending_.assign(1, first);
    for (int depth = 0; depth < kDeepestCascade && !pending_.empty(); ++depth) {
      const Recomputation r = pending_.back();
      pending_.pop_back();
      if (!profile_.may_insert(r.stage, r.node, options_.max_copies)) continue;
      profile_.for_each_read(r.node, [&](std::int32_t storage) { consider_input(r.stage, storage); });
      insert(r);
    }
  }

  void consider_input(std::int32_t stage, std::int32_t storage) {
    const auto size = problem_.size_bytes[storage];
    const auto node = problem_.producer[storage];
    if (size == 0 || node < 0 || !problem_.is_recreated[storage]) return;
    const auto last = profile_.copy_at(storage, stage).last;
    if (last >= stage - 1 || !profile_.may_insert(stage, node, options_.max_copies)) return;
    const double held = price_ * static_cast<double>(overflow_of_adding(profile_.load_bytes().data() + last + 1,
                                                                        stage - last - 1, size, profile_.budget_bytes()));
    const bool is_cheaper = held > cost_of(node) * (0.5 + random_.unit());
    if (is_cheaper != (random_.below(16) == 0)) pending_.push_back({stage, node});
  }

  void remove() {
    const auto r = chosen_[random_.below(chosen_.size())];
    erase_with_inputs(r);
    decide();
  }

  // Take out, and with it the copies of its inputs that nobody else reads.
  void erase_with_inputs(Recomputation first) {
    pending_.assign(1, first);
    while (!pending_.empty()) {
      const Recomputation r = pending_.back();
      pending_.pop_back();
      erase(r);
      profile_.for_each_read(r.node, [&](std::int32_t storage) {
        const auto node = problem_.producer[storage];
        if (node < 0 || !problem_.is_recreated[storage]) return;
        const auto first_stage = profile_.copy_at(storage, r.stage).first;
        if (first_stage > node && is_useless({first_stage, node})) {
          const Recomputation useless{first_stage, node};
          if (std::find(pending_.begin(), pending_.end(), useless) == pending_.end()) pending_.push_back(useless);
        }
      });
    }
  }

  bool is_useless(Recomputation r) const {
    for (const auto storage : problem_.writes[r.node]) {
      if (problem_.is_recreated[storage] && profile_.is_read(storage, r.stage)) return false;
    }
    return true;
  }

  // Move to another stage between the execution before and the first use.
  void shift() {
    const auto r = chosen_[random_.below(chosen_.size())];
    std::int32_t low = r.node + 1;
    const auto& made = profile_.executions_of(r.node);
    const auto own = std::lower_bound(made.begin(), made.end(), r.stage);
    if (own != made.begin()) low = *(own - 1) + 1;
    const std::int32_t next = own + 1 != made.end() ? *(own + 1) - 1 : problem_.last_stage[r.node];
    std::int32_t high = std::min(next, r.stage + kLongestShift);
    low = std::max(low, r.stage - kLongestShift);
    if (high <= low) return;
    const auto stage = low + static_cast<std::int32_t>(random_.below(static_cast<std::size_t>(high - low + 1)));
    if (stage == r.stage) return;
    if (random_.below(2) == 0) {
      erase(r);
      if (profile_.may_insert(stage, r.node, options_.max_copies)) insert({stage, r.node});
    } else {
      erase_with_inputs(r);
      insert_with_inputs({stage, r.node});
    }
    decide();
  }

  double cost_of(std::int32_t node) const { return static_cast<double>(problem_.recompute_duration[node]); }

  static constexpr std::uint64_t kMovesPerCheck = 64;
  static constexpr std::int64_t kWorkPerMove = 64;
  static constexpr int kDeepestCascade = 6;
  static constexpr std::int32_t kLongestShift = 32;

  const Problem& problem_;
  AnnealOptions options_;
  AnnealHooks hooks_;
  Profile profile_;
  Random random_;
  std::vector<std::int32_t> candidates_;  // storages that a recomputation can make again
  std::vector<Recomputation> chosen_;
  std::unordered_map<std::int64_t, std::size_t> index_;  // where in chosen_
  std::vector<Change> journal_;
  std::vector<Recomputation> pending_;
  std::vector<Recomputation> best_;
  std::int64_t best_extra_duration_ = 0;
  double mean_cost_ = 1;
  double price_ = 1;
  double temperature_ = 1;
  double bar_ = 0;
  double energy_ = 0;
  std::uint64_t num_moves_ = 0;
  std::uint64_t num_accepted_ = 0;
  bool has_best_ = false;
};

}  // namespace lowtide
