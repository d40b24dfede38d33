// Greedy insertion of recomputations, then ruin and recreate.
//
// Greedy: of all gaps between two uses of a storage, recompute before the second use where that removes the most
// overflow (bytes above the budget, summed over stages) per duration. A recomputation holds its dead inputs until then,
// or recomputes them too, whichever prefix of that cascade has the best ratio. Repeat until nothing overflows, then
// drop what is redundant. Ruin and recreate (Schrimpf et al. 2000): take some recomputations out, repair greedily with
// noise, keep the result if it is better (or, at first, not much worse).
//
// Work is counted in stages touched, so that equal seeds give equal plans on any machine; the clock only caps.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lowtide/problem.hpp"
#include "lowtide/profile.hpp"

namespace lowtide {

struct GreedyOptions {
  std::int64_t budget_bytes = 0;
  std::uint64_t seed = 0;
  std::int64_t max_copies = std::numeric_limits<std::int64_t>::max();  // executions of one node
  std::int64_t max_work = 0;                                           // stages touched while improving
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<Recomputation> start;  // what to begin with
  std::int64_t max_repair_work = std::numeric_limits<std::int64_t>::max();  // stages touched until a first plan fits
};

struct GreedyHooks {
  std::function<bool()> should_stop;                                    // asked a few times per second
  std::function<void(const std::vector<Recomputation>&)> on_better;     // every better plan that fits
};

struct GreedyOutcome {
  bool is_feasible = false;
  std::vector<Recomputation> plan;  // one that fits, or the one of the smallest peak met
  std::int64_t peak_bytes = 0;
  std::int64_t extra_duration = 0;
  std::int64_t num_rounds = 0;
  std::int64_t work = 0;
};

// SplitMix64: small, and the same on every platform, unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

class Greedy {
 public:
  Greedy(const Problem& problem, GreedyOptions options, GreedyHooks hooks)
      : problem_(problem),
        options_(options),
        hooks_(std::move(hooks)),
        profile_(problem, options.budget_bytes),
        random_(options.seed),
        noise_(problem.num_nodes(), 1.0),
        hot_before_(problem.num_nodes() + 1, 0),
        over_before_(problem.num_nodes() + 1, 0.0),
        started_(Clock::now()) {
    std::int64_t total = 0;
    for (const auto duration : problem.duration) total += duration;
    least_cost_ = 1e-9 * static_cast<double>(total) + 1e-3;
  }

  GreedyOutcome run() {
    for (const auto r : options_.start) {
      if (profile_.may_insert(r.stage, r.node, options_.max_copies)) put(r);
    }
    note_peak();
    allow_repair(most_repair_work());
    repair();
    prune(profile_.recomputations());
    note_peak();
    if (profile_.overflow_bytes() > 0) descend();
    if (profile_.overflow_bytes() == 0) keep_best();
    first_work_ = profile_.work();
    while (may_improve(1.0)) round();
    GreedyOutcome outcome;
    outcome.is_feasible = has_best_;
    outcome.plan = has_best_ ? best_ : smallest_;
    outcome.peak_bytes = has_best_ ? best_peak_bytes_ : smallest_peak_bytes_;
    outcome.extra_duration = best_extra_duration_;
    outcome.num_rounds = num_rounds_;
    outcome.work = profile_.work();
    return outcome;
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Candidate {
    double score;
    std::int32_t node;
    std::int32_t stage;
    // Ties: the later stage first, then the later node, so that the order is total.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score < b.score;
      return a.stage != b.stage ? a.stage < b.stage : a.node < b.node;
    }
  };

  // ---------------------------------------------------------------- changes, with a journal to take them back
  struct Change {
    Recomputation what;
    bool is_insert;
  };

  std::int64_t put(Recomputation r) {
    journal_.push_back({r, true});
    return profile_.insert(r.stage, r.node);
  }

  void take(Recomputation r) {
    journal_.push_back({r, false});
    profile_.erase(r.stage, r.node);
  }

  void rewind(std::size_t length) {
    while (journal_.size() > length) {
      const Change change = journal_.back();
      journal_.pop_back();
      if (change.is_insert) {
        profile_.erase(change.what.stage, change.what.node);
      } else {
        profile_.insert(change.what.stage, change.what.node);
      }
    }
  }

  // ---------------------------------------------------------------- one insertion with its cascade
  double cost_of(std::int32_t node) const {
    return std::max(static_cast<double>(problem_.recompute_duration[node]), least_cost_);
  }

  // Find the best prefix of the cascade that starts with `first`, if its ratio exceeds `floor`. Leaves nothing applied;
  // the prefix is in trial_. Raises most_ratio_ to what no prefix exceeds.
  double try_cascade(Recomputation first, double floor) {
    const auto mark = journal_.size();
    const auto before = profile_.overflow_bytes();
    pending_.clear();
    trial_.clear();
    double cost = 0;
    double best = floor;
    std::size_t best_length = 0;
    double most = 0;
    Recomputation r = first;
    const double most_cost = cost_limit_ - static_cast<double>(profile_.extra_duration());
    for (int depth = 0; depth < kDeepestCascade; ++depth) {
      cost += cost_of(r.node);
      if (cost > most_cost) break;
      note_dead_inputs(r);
      const auto released = put(r);
      trial_.push_back(r);
      if (depth == 0) most = static_cast<double>(released);
      const double ratio = static_cast<double>(before - profile_.overflow_bytes()) / cost;
      most_ratio_ = std::max(most_ratio_, ratio);
      if (ratio > best) {
        best = ratio;
        best_length = trial_.size();
      }
      if (!next_in_cascade(r.stage, r)) break;
      if (most <= best * (cost + cost_of(r.node))) {  // whatever else it takes away, it is too dear
        most_ratio_ = std::max(most_ratio_, most / (cost + cost_of(r.node)));
        break;
      }
    }
    rewind(mark);
    trial_.resize(best_length);
    return best_length == 0 ? 0.0 : best;
  }

  // Inputs that must be held from their last use until this recomputation, with what that weighs.
  void note_dead_inputs(Recomputation r) {
    profile_.for_each_read(r.node, [&](std::int32_t storage) {
      const auto last = profile_.copy_at(storage, r.stage).last;
      const auto size = problem_.size_bytes[storage];
      if (last >= r.stage || size == 0) return;
      const double held = held_over(last, r.stage, size);
      if (held > 0) pending_.push_back({held, problem_.producer[storage], r.stage});
    });
  }

  // Take the heaviest held input that can be recomputed instead.
  bool next_in_cascade(std::int32_t stage, Recomputation& r) {
    while (!pending_.empty()) {
      const auto heaviest = is_exploring_ && random_.below(3) == 0
                                ? pending_.begin() + static_cast<std::ptrdiff_t>(random_.below(pending_.size()))
                                : std::max_element(pending_.begin(), pending_.end());
      const Candidate chosen = *heaviest;
      pending_.erase(heaviest);
      if (chosen.node < 0 || !profile_.may_insert(stage, chosen.node, options_.max_copies)) continue;
      r = {stage, chosen.node};
      return true;
    }
    return false;
  }

  // Overflow that `size` more bytes add in the stages after `last` and before `stage`.
  double held_over(std::int32_t last, std::int32_t stage, std::int64_t size) {
    if (last + 1 >= stage) return 0;
    const auto* load = profile_.load_bytes().data() + last + 1;
    return static_cast<double>(overflow_of_adding(load, stage - last - 1, size, profile_.budget_bytes()));
  }

  // The best way to recompute `node` for a use at `stage`: right there, or earlier, while its inputs are still alive.
  double evaluate(std::int32_t node, std::int32_t stage, double floor) {
    most_ratio_ = 0;
    floor /= noise_[node];
    double best = try_cascade({stage, node}, floor);
    chosen_ = trial_;
    std::int32_t alive = stage;
    std::int32_t first = node;
    for (const auto storage : problem_.writes[node]) {
      first = std::max(first, profile_.copy_at(storage, stage - 1).first);
    }
    profile_.for_each_read(node, [&](std::int32_t storage) {
      const auto last = profile_.copy_at(storage, stage).last;
      if (last < alive && problem_.size_bytes[storage] > 0) alive = last;
    });
    if (is_exploring_ && stage - first > 1 && random_.below(2) == 0) {
      alive = first + 1 + static_cast<std::int32_t>(random_.below(static_cast<std::size_t>(stage - first - 1)));
    }
    if (alive < stage && alive > first && profile_.may_insert(alive, node, options_.max_copies)) {
      const double earlier = try_cascade({alive, node}, std::max(best, floor));
      if (earlier > best) {
        best = earlier;
        chosen_ = trial_;
      }
    }
    return chosen_.empty() ? 0.0 : best * noise_[node];
  }

  // ---------------------------------------------------------------- repair: insert until nothing overflows
  std::int64_t most_repair_work() const {
    return std::min(options_.max_repair_work, kRepairWorkPerNode * problem_.num_nodes());
  }

  void allow_repair(std::int64_t work) { repair_limit_ = profile_.work() + work; }

  bool repair() {
    while (profile_.overflow_bytes() > 0) {
      const auto before = profile_.overflow_bytes();
      collect_hot_stages();
      queue_ = {};
      score_by_candidate_.clear();
      for (std::int32_t storage = 0; storage < problem_.num_storages(); ++storage) push_gaps(storage);
      while (profile_.overflow_bytes() > 0 && !queue_.empty()) {
        if (is_stopped() || profile_.work() > repair_limit_) return false;
        step();
      }
      if (profile_.overflow_bytes() >= before) return false;
    }
    return true;
  }

  // Prefix counts of the stages that overflow, and of how much.
  void collect_hot_stages() {
    const auto& load = profile_.load_bytes();
    first_hot_ = problem_.num_nodes();
    last_hot_ = -1;
    for (std::int32_t stage = 0; stage < problem_.num_nodes(); ++stage) {
      const auto over = std::max<std::int64_t>(load[stage] - profile_.budget_bytes(), 0);
      hot_before_[stage + 1] = hot_before_[stage] + (over > 0);
      over_before_[stage + 1] = over_before_[stage] + static_cast<double>(over);
      if (over > 0) {
        first_hot_ = std::min(first_hot_, stage);
        last_hot_ = stage;
      }
    }
  }

  // Queue every gap of a storage that spans a stage with overflow, with a score that its true one does not exceed.
  void push_gaps(std::int32_t storage) {
    const auto node = problem_.producer[storage];
    if (node < 0 || !problem_.is_recreated[storage] || !problem_.is_recomputable(node)) return;
    if (node >= last_hot_) return;
    const auto& uses = profile_.uses_of(storage);
    if (uses.empty() || profile_.stage_of(uses.back()) <= first_hot_) return;
    const auto& made = profile_.executions_of(node);
    std::size_t copy = 0;
    std::int32_t previous = node;
    for (const auto use : uses) {
      const auto stage = profile_.stage_of(use);
      while (copy < made.size() && made[copy] <= stage) previous = std::max(previous, made[copy++]);
      if (stage - previous >= 2) push(node, previous, std::min(stage, problem_.num_nodes() - 1));
      previous = std::max(previous, stage);
    }
  }

  void push(std::int32_t node, std::int32_t previous, std::int32_t stage) {
    if (previous + 1 >= stage) return;
    const auto num_hot = hot_before_[stage] - hot_before_[previous + 1];
    if (num_hot == 0 || !profile_.may_insert(stage, node, options_.max_copies)) return;
    double size = 0;
    for (const auto storage : problem_.writes[node]) size += static_cast<double>(problem_.size_bytes[storage]);
    const double over = over_before_[stage] - over_before_[previous + 1];
    const double most = problem_.writes[node].end() - problem_.writes[node].begin() > 1
                            ? size * num_hot * 4  // other outputs may have longer gaps
                            : std::min(size * num_hot, over);
    push_scored({most / cost_of(node) * noise_[node], node, stage});
  }

  void push_scored(Candidate candidate) {
    auto& score = score_by_candidate_[key(candidate)];
    if (score >= candidate.score) return;
    score = candidate.score;
    queue_.push(candidate);
  }

  std::int64_t key(const Candidate& c) const {
    return static_cast<std::int64_t>(c.node) * problem_.num_nodes() + c.stage;
  }

  // Score the top of the queue again; insert it if it stays (almost) the best.
  void step() {
    const Candidate top = queue_.top();
    queue_.pop();
    auto& score = score_by_candidate_[key(top)];
    if (score != top.score) return;  // queued again with another score
    score = 0;
    if (!profile_.may_insert(top.stage, top.node, options_.max_copies)) return;
    const double bound = static_cast<double>(profile_.most_released(top.stage, top.node)) / cost_of(top.node) *
                         noise_[top.node];
    if (bound <= 0) return;
    if (!queue_.empty() && bound < queue_.top().score) {
      score = bound;
      queue_.push({bound, top.node, top.stage});
      return;
    }
    const double floor = queue_.empty() ? 0.0 : queue_.top().score * kWorthScoring;
    double found = evaluate(top.node, top.stage, floor);
    if (found <= 0 && floor > 0) found = std::min(floor, most_ratio_ * noise_[top.node]);
    if (found <= 0) return;
    if (!queue_.empty() && found < queue_.top().score * kGoodEnough) {
      score = found;
      queue_.push({found, top.node, top.stage});
      return;
    }
    const auto inserted = chosen_;
    for (const auto r : inserted) put(r);
    for (const auto r : inserted) push_neighbours(r.node);
  }

  // What an insertion may have made cheaper or longer: its own gaps, its inputs' and its readers'.
  void push_neighbours(std::int32_t node) {
    profile_.for_each_read(node, [&](std::int32_t storage) { push_gaps(storage); });
    for (const auto storage : problem_.writes[node]) {
      push_gaps(storage);
      for (const auto reader : problem_.readers[storage]) {
        for (const auto made : problem_.writes[reader]) push_gaps(made);
      }
    }
  }

  // Take out what is not needed, dearest first.
  void prune(std::vector<Recomputation> candidates) {
    std::stable_sort(candidates.begin(), candidates.end(), [&](const Recomputation& a, const Recomputation& b) {
      return problem_.recompute_duration[a.node] > problem_.recompute_duration[b.node];
    });
    for (const auto r : candidates) {
      if (!profile_.has(r.stage, r.node)) continue;
      const auto before = profile_.overflow_bytes();
      const auto mark = journal_.size();
      take(r);
      if (profile_.overflow_bytes() > before) rewind(mark);
    }
  }

  // Where inserting straight for the budget gets stuck: from nothing again, for budgets that sink to the given one.
  // Each plan is the start of the next, so that what overflows is little and near what is already recomputed.
  void descend() {
    for (const auto r : profile_.recomputations()) take(r);
    const auto highest = profile_.peak_bytes();
    const auto span = highest - options_.budget_bytes;
    const auto last_work = profile_.work() + most_repair_work();
    for (std::int64_t level = 1; level <= kNumLevels && !is_stopped() && profile_.work() < last_work; ++level) {
      allow_repair(last_work - profile_.work());
      profile_.set_budget(highest - span / kNumLevels * level - span % kNumLevels * level / kNumLevels);
      repair();
      prune(profile_.recomputations());
      note_peak();
      first_work_ = profile_.work();
      while (profile_.overflow_bytes() > 0 && may_improve(0.1)) round();
      if (profile_.overflow_bytes() > 0) break;
    }
    profile_.set_budget(options_.budget_bytes);
  }

  // ---------------------------------------------------------------- ruin and recreate
  void round() {
    ++num_rounds_;
    profile_.note_work(problem_.num_nodes());  // collecting and ruining look at all stages, however little comes of it
    const auto extra = profile_.extra_duration();
    const auto overflow = profile_.overflow_bytes();
    journal_.clear();
    set_noise();
    const double worse = has_best_ ? tolerance() : 0.0;
    ruin();
    if (has_best_) {  // whatever is dearer than what was taken out need not be tried; pruning may still save some
      const auto ruined = static_cast<double>(extra - profile_.extra_duration());
      cost_limit_ = static_cast<double>(extra) + worse + kPruningShare * ruined;
    }
    is_exploring_ = random_.below(2) == 0;
    allow_repair(options_.max_work / kLeastRounds);
    repair();
    is_exploring_ = false;
    cost_limit_ = std::numeric_limits<double>::infinity();
    prune_new();
    const bool is_kept = overflow > 0 || profile_.overflow_bytes() > 0
                             ? profile_.overflow_bytes() <= overflow
                             : static_cast<double>(profile_.extra_duration() - extra) <= worse;
    if (!is_kept) {
      rewind(0);
      return;
    }
    if (profile_.overflow_bytes() > 0) note_peak();
    const bool is_target = profile_.budget_bytes() == options_.budget_bytes;
    if (is_target && profile_.overflow_bytes() == 0 && (!has_best_ || profile_.extra_duration() < best_extra_duration_)) {
      prune(profile_.recomputations());
      keep_best();
    }
  }

  // The part of the allowed work that improving has used up.
  double work_share() const {
    if (options_.max_work <= 0) return 1.0;
    return static_cast<double>(profile_.work() - first_work_) / static_cast<double>(options_.max_work);
  }

  bool may_improve(double share) {
    return work_share() < share && profile_.num_recomputations() > 0 && !is_stopped();
  }

  // How much worse a plan may be to be walked on from; sinks to 0 as the work is used up.
  double tolerance() {
    const double left = 1.0 - work_share();
    const double each = static_cast<double>(best_extra_duration_) /
                        std::max<double>(1.0, static_cast<double>(best_.size()));
    return -std::log(1.0 - random_.unit()) * 0.3 * each * std::max(left, 0.0);
  }

  void set_noise() {
    static constexpr double kSpread[] = {0.0, 0.2, 0.5, 1.0};
    const double spread = kSpread[random_.below(4)];
    const auto salt = random_.next();
    const bool is_by_kind = random_.below(2) == 0;  // equal layers then change alike
    for (std::int32_t node = 0; node < problem_.num_nodes(); ++node) {
      Random own(salt + static_cast<std::uint64_t>(is_by_kind ? problem_.recompute_duration[node] : node));
      noise_[node] = std::exp(spread * (own.unit() - 0.5) * 2.0);
    }
  }

  void ruin() {
    auto all = profile_.recomputations();
    if (all.empty()) return;
    const auto most = std::min<std::size_t>(all.size(), 4 + random_.below(24));
    const auto count = 1 + random_.below(most);
    const auto centre = all[random_.below(all.size())];
    const auto kind = random_.below(4);
    const auto distance = [&](const Recomputation& r) -> std::int64_t {
      if (kind == 3) {  // of about its duration: the same operation in other layers
        return std::abs(problem_.recompute_duration[r.node] - problem_.recompute_duration[centre.node]);
      }
      return kind == 0 ? std::abs(r.stage - centre.stage) : std::abs(r.node - centre.node);
    };
    if (kind == 2) {
      for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + random_.below(all.size() - i)]);
    } else {
      std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count - 1), all.end(),
                       [&](const Recomputation& a, const Recomputation& b) {
                         return distance(a) != distance(b) ? distance(a) < distance(b) : a < b;
                       });
    }
    for (std::size_t i = 0; i < count; ++i) take(all[i]);
  }

  void prune_new() {
    std::vector<Recomputation> inserted;
    for (const auto& change : journal_) {
      if (change.is_insert) inserted.push_back(change.what);
    }
    prune(std::move(inserted));
  }

  // ---------------------------------------------------------------- the best so far, and when to stop
  void keep_best() {
    has_best_ = true;
    best_ = profile_.recomputations();
    best_extra_duration_ = profile_.extra_duration();
    best_peak_bytes_ = profile_.peak_bytes();
    if (hooks_.on_better) hooks_.on_better(best_);
  }

  void note_peak() {
    const auto peak = profile_.peak_bytes();
    if (peak >= smallest_peak_bytes_) return;
    smallest_peak_bytes_ = peak;
    smallest_ = profile_.recomputations();
  }

  bool is_stopped() {
    if (is_stopped_ || ++num_polls_ % 32 != 0) return is_stopped_;
    const auto now = Clock::now();
    is_stopped_ = std::chrono::duration<double>(now - started_).count() > options_.seconds;
    if (!is_stopped_ && hooks_.should_stop && now - asked_ > std::chrono::milliseconds(50)) {
      asked_ = now;
      is_stopped_ = hooks_.should_stop();
    }
    return is_stopped_;
  }

  static constexpr int kDeepestCascade = 40;
  static constexpr std::int64_t kNumLevels = 24;
  static constexpr std::int64_t kRepairWorkPerNode = 2'000'000;  // about three seconds for a thousand nodes
  static constexpr std::int64_t kLeastRounds = 20;
  static constexpr double kGoodEnough = 0.999;
  static constexpr double kWorthScoring = 0.5;  // of the next score: below that, knowing so is enough
  static constexpr double kPruningShare = 0.25;

  const Problem& problem_;
  GreedyOptions options_;
  GreedyHooks hooks_;
  Profile profile_;
  Random random_;
  std::vector<double> noise_;             // per node: its scores are multiplied by it
  std::vector<std::int64_t> hot_before_;  // prefix sums over stages
  std::vector<double> over_before_;
  Clock::time_point started_;
  Clock::time_point asked_{};
  double least_cost_ = 0;  // of a recomputation that takes no time
  double most_ratio_ = 0;
  std::int32_t first_hot_ = 0;
  std::int32_t last_hot_ = -1;
  std::priority_queue<Candidate> queue_;
  std::unordered_map<std::int64_t, double> score_by_candidate_;
  std::vector<Candidate> pending_;
  std::vector<Recomputation> trial_;
  std::vector<Recomputation> chosen_;
  std::vector<Change> journal_;
  std::vector<Recomputation> best_;
  std::vector<Recomputation> smallest_;
  std::int64_t best_extra_duration_ = 0;
  std::int64_t best_peak_bytes_ = 0;
  std::int64_t smallest_peak_bytes_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t num_rounds_ = 0;
  std::int64_t repair_limit_ = 0;
  std::int64_t first_work_ = 0;  // done before the first round
  std::uint64_t num_polls_ = 0;
  double cost_limit_ = std::numeric_limits<double>::infinity();  // of the whole plan, while a round repairs it
  bool has_best_ = false;
  bool is_stopped_ = false;
  bool is_exploring_ = false;
};

}  // namespace lowtide
