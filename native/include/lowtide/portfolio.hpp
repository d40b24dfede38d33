// A portfolio of searches over threads and seeds, and the plans that they leave behind.
//
//              first half of the work                   second half, in rounds
//   thread 0   from the start, in one go                combine two plans | anneal, mild | combine ...
//   thread 1   from nothing | from nothing | ...        combine two plans | combine ...  | anneal, hot ...
//
// In the first half threads ruin and recreate from nothing, again and again with other seeds: plans of equal quality that
// differ much. The best of all plans are kept; what two of them recompute together is more than
// enough, and ruin and recreate from there finds what is good in both (as crossover and local search do in memetic
// algorithms, Moscato 1989). Every search of a round starts from what was kept before it.
//
// What a search does depends on the problem, its number, its seed, its work and its start alone, and what is found is
// merged in the order of the threads: equal seeds and threads give equal plans. The clock and should_stop only cut the
// whole short. Hooks are called by the calling thread alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "lowtide/anneal.hpp"
#include "lowtide/greedy.hpp"
#include "lowtide/problem.hpp"
#include "lowtide/profile.hpp"

namespace lowtide {

struct PortfolioOptions {
  std::int64_t budget_bytes = 0;
  std::uint64_t seed = 0;
  std::int32_t num_threads = 1;
  std::int64_t max_copies = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_work = 0;  // of each thread
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Recomputation>> starts;  // the first to begin with, unless empty; all to combine
};

struct PortfolioHooks {
  std::function<bool()> should_stop;
  std::function<void(const std::vector<Recomputation>&)> on_better;
};

struct PortfolioOutcome {
  bool is_feasible = false;
  std::vector<Recomputation> plan;  // one that fits, or the one of the smallest peak met
  std::int64_t peak_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t extra_duration = 0;
  std::int64_t num_rounds = 0;
};

class Portfolio {
 public:
  Portfolio(const Problem& problem, PortfolioOptions options, PortfolioHooks hooks)
      : problem_(problem), options_(options), hooks_(std::move(hooks)), started_(Clock::now()) {}

  PortfolioOutcome run() {
    for (const auto& start : options_.starts) {
      if (start.empty()) continue;
      auto found = found_of(start);
      keep(found);
      merge(found, best_);
    }
    const auto half = options_.max_work - options_.max_work / 2;
    run_phase(half, [&](std::size_t thread) { return go_alone(thread, half); });
    std::int64_t left = options_.max_work - half;
    std::int64_t num_idle = 0;  // rounds without anything better
    for (std::int64_t share = left / kFirstRounds; left > 0 && share > 0 && !is_over_ && num_idle < kMostIdleRounds; share += share / 8) {
      const auto work = std::min(share, left);
      left -= work;
      const auto first = static_cast<std::uint64_t>(best_.num_rounds) * num_threads();
      num_idle = run_phase(work, [&](std::size_t thread) { return Founds{search(first + thread, work, best_)}; })
                     ? 0
                     : num_idle + 1;
    }
    return best_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  using Plan = std::vector<Recomputation>;

  struct Found {
    bool is_feasible = false;
    std::vector<Recomputation> plan;
    std::int64_t peak_bytes = std::numeric_limits<std::int64_t>::max();
    std::int64_t extra_duration = 0;
  };

  using Founds = std::vector<Found>;

  std::size_t num_threads() const { return static_cast<std::size_t>(std::max(1, options_.num_threads)); }

  // Let every thread work; the calling thread passes on what they find and asks whether to stop. Returns whether the
  // best has become better.
  bool run_phase(std::int64_t work, const std::function<Founds(std::size_t)>& work_on) {
    if (work <= 0) return false;
    std::vector<Founds> found(num_threads());
    std::vector<std::exception_ptr> errors(num_threads());
    std::vector<std::thread> threads;
    is_stopped_ = is_over_;
    num_running_ = static_cast<std::int32_t>(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      threads.emplace_back([this, &found, &errors, &work_on, i] {
        try {
          found[i] = work_on(i);
        } catch (...) {
          errors[i] = std::current_exception();
        }
        const std::lock_guard<std::mutex> held(mutex_);
        --num_running_;
        changed_.notify_all();
      });
    }
    std::exception_ptr error;
    try {
      attend();
    } catch (...) {
      error = std::current_exception();
      is_stopped_ = is_over_ = true;
    }
    for (auto& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
    bool is_better = false;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      for (auto& one : found[i]) {
        keep(one);
        is_better |= merge(one, best_);
      }
    }
    ++best_.num_rounds;
    return is_better;
  }

  void attend() {
    std::unique_lock<std::mutex> held(mutex_);
    while (true) {
      changed_.wait_for(held, kLook, [&] { return num_running_ == 0 || has_news_; });
      if (has_news_) {
        has_news_ = false;
        const auto news = news_;
        held.unlock();
        if (hooks_.on_better) hooks_.on_better(news);
        held.lock();
      }
      if (num_running_ == 0 && !has_news_) return;
      held.unlock();
      const auto elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
      if (elapsed > options_.seconds) is_over_ = true;
      if (!is_over_ && hooks_.should_stop && hooks_.should_stop()) is_over_ = true;
      if (is_over_) is_stopped_ = true;
      held.lock();
    }
  }

  void tell(const std::vector<Recomputation>& plan, std::int64_t extra_duration, std::int64_t budget_bytes) {
    if (budget_bytes > options_.budget_bytes) return;  // it may fit all the same; the end of the search will say so
    const std::lock_guard<std::mutex> held(mutex_);
    if (extra_duration >= told_extra_duration_) return;
    told_extra_duration_ = extra_duration;
    news_ = plan;
    has_news_ = true;
    changed_.notify_all();
  }

  // ---------------------------------------------------------------- the members
  enum class Kind { kCombineBest, kCombineAny, kRuin, kAnneal };

  struct Member {
    Kind kind;
    double hottest;  // of an annealing
    double coldest;
    bool is_from_best;
  };

  static constexpr Member kMembers[] = {
      {Kind::kCombineBest, 0.0, 0.0, true}, {Kind::kCombineAny, 0.0, 0.0, true},  {Kind::kAnneal, 0.1, 0.003, true},
      {Kind::kCombineBest, 0.0, 0.0, true}, {Kind::kAnneal, 0.3, 0.003, true},    {Kind::kCombineAny, 0.0, 0.0, true},
      {Kind::kRuin, 0.0, 0.0, true},        {Kind::kCombineBest, 0.0, 0.0, true}, {Kind::kAnneal, 1.0, 0.01, false},
  };

  // A thread's first half of the work: one search from the start, where there is one, for the first thread; else a few
  // from nothing, or, where nothing is found to fit, each from the smallest peak so far.
  Founds go_alone(std::size_t thread, std::int64_t work) {
    if (thread == 0 && !options_.starts.empty() && !options_.starts.front().empty()) {
      return {ruin_and_recreate(options_.budget_bytes, options_.seed, work, options_.starts.front(), true)};
    }
    Founds all;
    PortfolioOutcome own;
    for (std::int64_t i = 0; i < kSearchesAlone && !is_stopped_; ++i) {
      const auto number = thread + static_cast<std::uint64_t>(i) * num_threads();
      const auto share = work / kSearchesAlone;
      if (i > 0 && !own.is_feasible) {
        all.push_back(search(number, share, own));
      } else {
        all.push_back(ruin_and_recreate(options_.budget_bytes, seed_of(number), share, {}, number == 0));
      }
      auto found = all.back();
      merge(found, own);
      ++own.num_rounds;
    }
    return all;
  }

  std::uint64_t seed_of(std::uint64_t number) const {
    return number == 0 ? options_.seed : Random(options_.seed * 0x9e3779b97f4a7c15ULL + number).next();
  }

  Found search(std::uint64_t number, std::int64_t work, const PortfolioOutcome& best) {
    const auto seed = seed_of(number);
    const auto& member = kMembers[number % std::size(kMembers)];
    const auto budget_bytes = budget_of(number, best);
    Found found;
    if (member.kind == Kind::kAnneal && (best.is_feasible || !member.is_from_best)) {
      found = anneal(member, budget_bytes, seed, work, best);
    } else {
      const auto start = member.kind == Kind::kRuin ? best.plan : combined(member.kind, seed, best);
      found = ruin_and_recreate(budget_bytes, seed, work, start, false);
    }
    found.is_feasible = found.is_feasible && found.peak_bytes <= options_.budget_bytes;
    return found;
  }

  // What two of the kept plans recompute; the best plan where there are no two.
  Plan combined(Kind kind, std::uint64_t seed, const PortfolioOutcome& best) const {
    if (kept_.size() < 2) return best.plan;
    Random random(~seed);
    const auto first = kind == Kind::kCombineBest ? 0 : random.below(kept_.size());
    const auto second = (first + 1 + random.below(kept_.size() - 1)) % kept_.size();
    Plan both;
    std::set_union(kept_[first].plan.begin(), kept_[first].plan.end(), kept_[second].plan.begin(),
                   kept_[second].plan.end(), std::back_inserter(both));
    return both;
  }

  // Where nothing fits yet, most searches try a budget on the way from the smallest peak met to the one asked for: what
  // fits there is the start of the next.
  std::int64_t budget_of(std::uint64_t number, const PortfolioOutcome& best) const {
    if (best.is_feasible || best.num_rounds == 0) return options_.budget_bytes;
    const auto missing = best.peak_bytes - options_.budget_bytes;
    const auto step = static_cast<std::int64_t>(number % kStepsDown);
    return options_.budget_bytes + missing / kStepsDown * step;
  }

  Found ruin_and_recreate(std::int64_t budget_bytes, std::uint64_t seed, std::int64_t work, const Plan& start,
                          bool is_first) {
    GreedyOptions options;
    options.budget_bytes = budget_bytes;
    options.seed = seed;
    options.max_copies = options_.max_copies;
    options.max_work = work;
    if (!is_first) options.max_repair_work = work;
    options.start = start;
    GreedyHooks hooks;
    hooks.should_stop = [this] { return is_stopped_.load(); };
    hooks.on_better = [this, budget_bytes](const Plan& plan) { tell(plan, extra_duration_of(plan), budget_bytes); };
    const auto outcome = Greedy(problem_, options, hooks).run();
    return {outcome.is_feasible, outcome.plan, outcome.peak_bytes, outcome.extra_duration};
  }

  Found anneal(const Member& member, std::int64_t budget_bytes, std::uint64_t seed, std::int64_t work,
               const PortfolioOutcome& best) {
    AnnealOptions options;
    options.budget_bytes = budget_bytes;
    options.seed = seed;
    options.max_copies = options_.max_copies;
    options.max_work = work;
    options.hottest = member.hottest;
    options.coldest = member.coldest;
    AnnealHooks hooks;
    hooks.should_stop = [this] { return is_stopped_.load(); };
    hooks.on_better = [this, budget_bytes](const std::vector<Recomputation>& plan, std::int64_t extra) {
      tell(plan, extra, budget_bytes);
    };
    Anneal annealing(problem_, options, hooks);
    annealing.run(member.is_from_best ? best.plan : std::vector<Recomputation>{});
    if (!annealing.has_best()) return {false, {}, std::numeric_limits<std::int64_t>::max(), 0};
    return {true, annealing.best(), peak_of(annealing.best()), annealing.best_extra_duration()};
  }

  std::int64_t extra_duration_of(const std::vector<Recomputation>& plan) const {
    std::int64_t extra = 0;
    for (const auto& r : plan) extra += problem_.recompute_duration[r.node];
    return extra;
  }

  std::int64_t peak_of(const std::vector<Recomputation>& plan) const {
    Profile profile(problem_, options_.budget_bytes);
    for (const auto& r : plan) profile.insert(r.stage, r.node);
    return profile.peak_bytes();
  }

  Found found_of(const Plan& plan) const {
    Profile profile(problem_, options_.budget_bytes);
    Found found;
    for (const auto& r : plan) {
      if (!profile.may_insert(r.stage, r.node, options_.max_copies)) continue;
      profile.insert(r.stage, r.node);
    }
    found.plan = profile.recomputations();
    found.peak_bytes = profile.peak_bytes();
    found.is_feasible = found.peak_bytes <= options_.budget_bytes;
    found.extra_duration = profile.extra_duration();
    return found;
  }

  // Keep a plan that fits, in the order of their durations, one of each duration.
  void keep(const Found& found) {
    if (!found.is_feasible) return;
    const auto place = std::lower_bound(
        kept_.begin(), kept_.end(), found.extra_duration,
        [](const Found& other, std::int64_t extra_duration) { return other.extra_duration < extra_duration; });
    if (place != kept_.end() && place->extra_duration == found.extra_duration) return;
    kept_.insert(place, found);
    if (kept_.size() > kMostKept) kept_.pop_back();
  }

  static bool merge(Found& found, PortfolioOutcome& best) {
    if (best.is_feasible && (!found.is_feasible || found.extra_duration >= best.extra_duration)) return false;
    if (!found.is_feasible && found.peak_bytes >= best.peak_bytes) return false;
    best.is_feasible = found.is_feasible;
    best.plan = std::move(found.plan);
    best.extra_duration = found.extra_duration;
    best.peak_bytes = found.peak_bytes;
    return true;
  }

  static constexpr std::int64_t kFirstRounds = 12;
  static constexpr std::int64_t kMostIdleRounds = 8;
  static constexpr std::int64_t kSearchesAlone = 4;
  static constexpr std::size_t kMostKept = 5;
  static constexpr std::int64_t kStepsDown = 5;
  static constexpr std::chrono::milliseconds kLook{30};

  const Problem& problem_;
  PortfolioOptions options_;
  PortfolioHooks hooks_;
  Clock::time_point started_;
  PortfolioOutcome best_;
  Founds kept_;  // plans that fit, shortest first
  bool is_over_ = false;  // of the calling thread; is_stopped_ tells the others
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int32_t num_running_ = 0;
  bool has_news_ = false;
  std::vector<Recomputation> news_;
  std::int64_t told_extra_duration_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lowtide
