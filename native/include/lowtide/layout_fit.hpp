// Lowest fit: spans are placed one by one, in some order, each at the lowest offset that is free while it lives.
//
// The order is everything. First come orders by contention (the largest load during a span): what lives through the
// peak is placed while there is still room for it, what does not fills the gaps; ties by length, area or size. Where
// the best of them stays above the largest load, local search changes the order: a span that sticks out goes before
// one that lies beneath it. Only what comes after that one is placed anew, and a try ends as soon as it sticks out more.
//
// Work is counted in spans looked at, so that equal seeds give equal layouts on any machine; the clock only caps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "lowtide/layout.hpp"

namespace lowtide {

struct FitOptions {
  std::int64_t enough = 0;    // a footprint up to this ends the local search
  std::int64_t max_work = 0;  // spans looked at in the local search
  std::uint64_t seed = 0;
  double seconds = std::numeric_limits<double>::infinity();
  std::function<bool()> should_stop;  // asked a few times per second; may throw
};

struct FitOutcome {
  std::vector<std::int64_t> offsets;
  std::int64_t footprint = 0;
  std::int64_t num_rounds = 0;
  std::int64_t work = 0;
};

class LowestFit {
 public:
  LowestFit(const Spans& spans, FitOptions options)
      : spans_(spans), options_(std::move(options)), random_(options_.seed), started_(Clock::now()) {
    options_.enough = std::max(options_.enough, spans.peak);
  }

  FitOutcome run() {
    best_.footprint = kNone;
    for (auto& order : orders()) {
      offsets_.assign(spans_.size.size(), 0);
      order_ = std::move(order);
      placed_.clear();
      if (place_from(0, kNone)) keep_if_better();
      if (best_.footprint <= spans_.peak) break;
    }
    if (best_.footprint > options_.enough) improve();
    best_.work = work_;
    return best_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Order = std::vector<std::int32_t>;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kWorkBetweenLooks = 1 << 22;
  static constexpr std::int64_t kRoundsBeforeReturn = 400;  // without success: back to the best order, shaken

  struct Placed {
    std::int64_t offset, top;
    std::int32_t start, end, rank;
  };

  std::vector<Order> orders() const {
    const auto contention = contention_of(spans_);
    const auto by = [&](auto key) {
      Order order(spans_.size.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) > key(b); });
      return order;
    };
    const auto length = [&](std::int32_t i) { return spans_.length(i); };
    const auto area = [&](std::int32_t i) {
      return static_cast<double>(spans_.length(i)) * static_cast<double>(spans_.size[i]);
    };
    return {
        by([&](auto i) { return std::tuple(contention[i], length(i), spans_.size[i]); }),
        by([&](auto i) { return std::tuple(contention[i], area(i), spans_.size[i]); }),
        by([&](auto i) { return std::tuple(contention[i], spans_.size[i], length(i)); }),
        by([&](auto i) { return std::tuple(length(i), spans_.size[i]); }),
        by([&](auto i) { return std::tuple(area(i), spans_.size[i]); }),
        by([&](auto i) { return std::tuple(spans_.size[i], length(i)); }),
        by([&](auto i) { return std::tuple(-spans_.start[i], spans_.end[i]); }),
    };
  }

  // Place order_[first..] beside what placed_ holds; false as soon as something ends above `highest`.
  bool place_from(std::size_t first, std::int64_t highest) {
    for (std::size_t rank = first; rank < order_.size(); ++rank) {
      const auto span = order_[rank];
      const auto start = spans_.start[span], end = spans_.end[span];
      const auto size = spans_.size[span];
      std::int64_t cursor = 0;
      std::size_t at = 0;
      for (; at < placed_.size(); ++at) {  // sorted by offset
        const auto& other = placed_[at];
        if (other.offset >= cursor + size) break;
        if (other.start < end && start < other.end && other.top > cursor) cursor = other.top;
      }
      work_ += static_cast<std::int64_t>(at) + 1;
      offsets_[span] = cursor;
      if (cursor + size > highest) return false;
      const auto position = std::upper_bound(placed_.begin(), placed_.end(), cursor,
                                             [](auto offset, const Placed& p) { return offset < p.offset; });
      placed_.insert(position, {cursor, cursor + size, start, end, static_cast<std::int32_t>(rank)});
    }
    return true;
  }

  void keep_if_better() {
    const auto footprint = footprint_of(spans_, offsets_);
    if (footprint >= best_.footprint) return;
    best_.footprint = footprint;
    best_.offsets = offsets_;
    best_order_ = order_;
    best_placed_ = placed_;
  }

  // How far spans stick out above what would be enough: what the local search lowers.
  std::pair<std::int64_t, double> excess(const std::vector<std::int64_t>& offsets) const {
    std::int64_t footprint = 0;
    double sum = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const auto top = offsets[i] + spans_.size[i];
      footprint = std::max(footprint, top);
      if (top > options_.enough) sum += static_cast<double>(top - options_.enough);
    }
    return {footprint, sum};
  }

  void improve() {
    std::int64_t next_look = work_;
    const std::int64_t last_work = work_ + options_.max_work;
    return_to_best();
    std::int64_t rounds_without_success = 0;
    while (best_.footprint > options_.enough && work_ < last_work) {
      if (work_ >= next_look) {
        if (is_over()) return;
        next_look = work_ + kWorkBetweenLooks;
      }
      ++best_.num_rounds;
      if (try_move()) rounds_without_success = 0;
      if (++rounds_without_success > kRoundsBeforeReturn) {
        return_to_best();
        shake();
        rounds_without_success = 0;
      }
    }
  }

  bool is_over() const {
    if (std::chrono::duration<double>(Clock::now() - started_).count() > options_.seconds) return true;
    return options_.should_stop && options_.should_stop();
  }

  void return_to_best() {
    order_ = best_order_;
    offsets_ = best_.offsets;
    placed_ = best_placed_;
    excess_ = excess(offsets_);
  }

  // Forget where the spans from a rank on lie.
  void lift_from(std::size_t first) {
    std::erase_if(placed_, [&](const Placed& p) { return p.rank >= static_cast<std::int32_t>(first); });
  }

  // Move a span that sticks out before one that it overlaps; true if that is better than ever.
  bool try_move() {
    std::vector<std::size_t> sticking_out;  // ranks
    for (std::size_t rank = 0; rank < order_.size(); ++rank) {
      const auto span = order_[rank];
      if (offsets_[span] + spans_.size[span] > options_.enough) sticking_out.push_back(rank);
    }
    const auto from = sticking_out[random_.below(sticking_out.size())];
    const auto to = rank_before(from);
    if (to == from) return false;
    kept_order_ = order_;
    kept_offsets_ = offsets_;
    kept_placed_ = placed_;
    std::rotate(order_.begin() + to, order_.begin() + from, order_.begin() + from + 1);
    lift_from(to);
    work_ += static_cast<std::int64_t>(order_.size());
    if (place_from(to, excess_.first)) {
      const auto found = excess(offsets_);
      if (found <= excess_) {
        const bool is_better = found < excess_;
        excess_ = found;
        if (found.first < best_.footprint) keep_if_better();
        return is_better;
      }
    }
    order_.swap(kept_order_);
    offsets_.swap(kept_offsets_);
    placed_.swap(kept_placed_);
    return false;
  }

  // A rank before `from` whose span overlaps the one at `from`; small steps and large ones alike.
  std::size_t rank_before(std::size_t from) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < from; ++rank) {
      if (spans_.overlap(order_[rank], order_[from])) ranks.push_back(rank);
    }
    if (ranks.empty()) return from;
    const auto reach = 1 + random_.below(ranks.size());  // the last `reach` of them
    return ranks[ranks.size() - 1 - random_.below(reach)];
  }

  // A few random moves, whatever comes of them.
  void shake() {
    const auto num_moves = 2 + random_.below(4);
    std::size_t first = order_.size();
    for (std::size_t k = 0; k < num_moves; ++k) {
      const auto from = random_.below(order_.size());
      const auto to = rank_before(from);
      std::rotate(order_.begin() + to, order_.begin() + from, order_.begin() + from + 1);
      first = std::min(first, to);
    }
    lift_from(first);
    place_from(first, kNone);
    excess_ = excess(offsets_);
    keep_if_better();
  }

  const Spans& spans_;
  FitOptions options_;
  LayoutRandom random_;
  Clock::time_point started_;
  std::int64_t work_ = 0;
  Order order_, best_order_, kept_order_;
  std::vector<std::int64_t> offsets_, kept_offsets_;
  std::vector<Placed> placed_, best_placed_, kept_placed_;  // sorted by offset
  std::pair<std::int64_t, double> excess_;
  FitOutcome best_;
};

}  // namespace lowtide
