// Exact packing: is there a layout of at most `capacity`? Written after the ideas of Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023). His buffers are our spans, his sections our
// columns.
//
// Of all layouts that fit, take one whose sum of offsets is least. In it every span rests on another one or on the
// ground, and none could be moved down, alone. So it suffices to look for layouts like that, from the bottom up:
//   canonical        spans are placed by rising (offset, rank), each at its floor: the highest top of the placed spans
//                    that it overlaps. One whose floor was passed must first be raised by another.
//   dominance        a span is not placed at or above the top that another unplaced one would have at its own floor:
//                    that one could be moved down there.
//   inference        in every column: f plus the sizes of the unplaced spans with a floor of f or more must not exceed
//                    the capacity, for every f (floors are at least the offset reached: they are monotonic).
//   decomposition    spans that no chain of overlaps connects any more are packed apart; if one group cannot, no other
//                    choice within the others helps.
//   twins            equal spans are placed by rank.
//   hatless          a span placed with nothing unplaced that overlaps it is in nobody's way: no other place for it helps.
// Departures: a search is restarted with other ranks and twice the nodes (the paper runs its orders round robin); floors
// of passed spans are raised by what must come beneath them; inference looks at every f, not the lowest floor alone.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "lowtide/layout.hpp"

namespace lowtide {

struct PackOptions {
  std::int64_t capacity = 0;
  std::int64_t max_nodes = 0;  // of the search tree, all restarts together
  std::uint64_t seed = 0;
  double seconds = std::numeric_limits<double>::infinity();
  std::function<bool()> should_stop;  // asked a few times per second; may throw
};

enum class PackAnswer { kPacked, kImpossible, kGaveUp };

struct PackOutcome {
  PackAnswer answer = PackAnswer::kGaveUp;
  std::vector<std::int64_t> offsets;  // where packed
  std::int64_t footprint = 0;         // of these
  std::int64_t num_nodes = 0;
};

class Packer {
 public:
  static constexpr std::int32_t kMostSpans = 8000;  // the search is as deep as there are spans

  Packer(const Spans& spans, PackOptions options)
      : spans_(spans), options_(std::move(options)), random_(options_.seed), started_(Clock::now()) {
    for (std::int32_t i = 0; i < spans.num_spans() && spans.num_spans() <= kMostSpans; ++i) {
      std::int32_t overlaps = 0;
      for (std::int32_t j = 0; j < spans.num_spans(); ++j) overlaps += spans.overlap(i, j);
      num_overlaps_.push_back(overlaps);
    }
  }

  PackOutcome run() {
    if (spans_.peak > options_.capacity) return {PackAnswer::kImpossible, {}, 0, 0};
    if (spans_.num_spans() > kMostSpans) return {};
    std::int64_t limit = kFirstNodes;
    for (std::size_t round = 0;; ++round) {
      const auto answer = search(ranking(round), limit);
      if (answer != PackAnswer::kGaveUp) return {answer, offsets_, footprint_of(spans_, offsets_), num_nodes_};
      if (is_stopped_ || num_nodes_ >= options_.max_nodes) return {PackAnswer::kGaveUp, {}, 0, num_nodes_};
      if (round % (2 * kNumOrders) == 2 * kNumOrders - 1) limit *= 2;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Group = std::vector<std::int32_t>;
  static constexpr std::int64_t kFirstNodes = 2000;
  static constexpr std::int64_t kNodesBetweenLooks = 512;
  static constexpr std::size_t kNumOrders = 6;

  struct Reached {  // where the placing has come to; the next one comes after it
    std::int64_t offset;
    std::int32_t rank;
    bool operator<(const Reached& other) const { return std::tie(offset, rank) < std::tie(other.offset, other.rank); }
  };

  // Spans by falling importance (his W, A, T are width, area, total); every other round is shuffled a little.
  std::vector<std::int32_t> ranking(std::size_t round) {
    const auto contention = contention_of(spans_);
    Group order(spans_.size.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::array<double, 3>> key(order.size());
    for (const auto i : order) {
      const auto width = static_cast<double>(spans_.width[i]), total = static_cast<double>(contention[i]);
      const auto size = static_cast<double>(spans_.size[i]), area = width * size;
      const auto overlaps = static_cast<double>(num_overlaps_[i]);
      const std::array<std::array<double, 3>, kNumOrders> keys{{{total, width, area},
                                                                {total, overlaps, width},
                                                                {total, area, width},
                                                                {area, width, total},
                                                                {width, area, total},
                                                                {size, width, total}}};
      key[i] = keys[round % kNumOrders];
      if (round / kNumOrders % 2 == 1) key[i][0] *= 1.0 + 0.1 * static_cast<double>(random_.below(1000)) / 1000.0;
    }
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key[a] > key[b]; });
    std::vector<std::int32_t> rank(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = static_cast<std::int32_t>(k);
    return rank;
  }

  PackAnswer search(std::vector<std::int32_t> rank, std::int64_t limit) {
    rank_ = std::move(rank);
    floor_.assign(spans_.size.size(), 0);
    offsets_.assign(spans_.size.size(), 0);
    is_placed_.assign(spans_.size.size(), false);
    above_.assign(spans_.load.size(), 0);
    raised_.clear();
    twin_before_ = twins();
    last_node_ = std::min(options_.max_nodes, num_nodes_ + limit);
    is_cut_ = false;
    Group all(spans_.size.size());
    std::iota(all.begin(), all.end(), 0);
    std::sort(all.begin(), all.end(),
              [&](auto a, auto b) { return std::tie(spans_.start[a], a) < std::tie(spans_.start[b], b); });
    const bool is_packed = pack_groups(all, {0, -1});
    if (is_packed) return PackAnswer::kPacked;
    return is_cut_ ? PackAnswer::kGaveUp : PackAnswer::kImpossible;
  }

  // For each span the equal one that must be placed before it, or -1.
  std::vector<std::int32_t> twins() const {
    Group order(spans_.size.size());
    std::iota(order.begin(), order.end(), 0);
    const auto shape = [&](auto i) { return std::tie(spans_.start[i], spans_.end[i], spans_.size[i]); };
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return std::tuple(shape(a), rank_[a]) < std::tuple(shape(b), rank_[b]);
    });
    std::vector<std::int32_t> before(order.size(), -1);
    for (std::size_t k = 1; k < order.size(); ++k) {
      if (shape(order[k - 1]) == shape(order[k])) before[order[k]] = order[k - 1];
    }
    return before;
  }

  // Pack unplaced spans, sorted by start, group by group; what was placed in vain is taken back.
  bool pack_groups(const Group& spans, Reached reached) {
    Group placed_here;
    const auto num_placed = history_.size();
    std::size_t begin = 0;
    while (begin < spans.size()) {
      std::size_t end = begin + 1;
      auto reach = spans_.end[spans[begin]];
      for (; end < spans.size() && spans_.start[spans[end]] < reach; ++end) reach = std::max(reach, spans_.end[spans[end]]);
      if (!pack(Group(spans.begin() + begin, spans.begin() + end), reached)) {
        while (history_.size() > num_placed) take_back();
        return false;
      }
      begin = end;
    }
    return true;
  }

  // Pack a group of unplaced spans, sorted by start and connected by overlaps, above what is reached.
  bool pack(const Group& group, Reached reached) {
    if (++num_nodes_ > last_node_ || (num_nodes_ % kNodesBetweenLooks == 0 && is_over())) {
      is_cut_ = true;
      return false;
    }
    if (!may_fit(group, reached)) return false;
    for (const auto span : candidates(group, reached)) {
      const bool is_hatless = !place(span, group);
      Group rest;
      rest.reserve(group.size() - 1);
      for (const auto other : group) {
        if (other != span) rest.push_back(other);
      }
      if (pack_groups(rest, {floor_[span], rank_[span]})) return true;
      take_back();
      if (is_cut_ || is_hatless) return false;
    }
    return false;
  }

  bool is_over() {
    if (std::chrono::duration<double>(Clock::now() - started_).count() > options_.seconds) is_stopped_ = true;
    if (options_.should_stop && options_.should_stop()) is_stopped_ = true;
    return is_stopped_;
  }

  // Whether in every column those unplaced spans with a floor of f or more have room above f, for every f.
  bool may_fit(const Group& group, Reached reached) {
    std::int64_t lowest_top = std::numeric_limits<std::int64_t>::max();  // whoever raises a passed span comes first
    for (const auto span : group) {
      if (!is_passed(span, reached)) lowest_top = std::min(lowest_top, floor_[span] + spans_.size[span]);
    }
    falling_.clear();
    auto last = spans_.start[group.front()];
    for (const auto span : group) {
      last = std::max(last, spans_.end[span]);
      falling_.push_back({is_passed(span, reached) ? lowest_top : floor_[span], span});
    }
    std::sort(falling_.begin(), falling_.end(), std::greater<>());
    std::fill(above_.begin() + spans_.start[group.front()], above_.begin() + last, 0);
    for (const auto& [floor, span] : falling_) {
      const auto room = options_.capacity - floor;
      for (auto c = spans_.start[span]; c < spans_.end[span]; ++c) {
        if ((above_[c] += spans_.size[span]) > room) return false;
      }
    }
    return true;
  }

  bool is_passed(std::int32_t span, Reached reached) const {
    return !(reached < Reached{floor_[span], rank_[span]});
  }

  // What may be placed next, lowest first.
  Group candidates(const Group& group, Reached reached) const {
    std::int64_t lowest_top = std::numeric_limits<std::int64_t>::max();
    for (const auto span : group) lowest_top = std::min(lowest_top, floor_[span] + spans_.size[span]);
    Group chosen;
    for (const auto span : group) {
      const auto twin = twin_before_[span];
      if (floor_[span] >= lowest_top || is_passed(span, reached)) continue;
      if (twin < 0 || is_placed_[twin]) chosen.push_back(span);
    }
    std::sort(chosen.begin(), chosen.end(), [&](auto a, auto b) {
      return Reached{floor_[a], rank_[a]} < Reached{floor_[b], rank_[b]};
    });
    return chosen;
  }

  // Place a span at its floor; true if that raises an unplaced one.
  bool place(std::int32_t span, const Group& group) {
    const auto top = floor_[span] + spans_.size[span];
    offsets_[span] = floor_[span];
    is_placed_[span] = true;
    history_.push_back({span, raised_.size()});
    bool has_above = false;
    for (const auto other : group) {
      if (spans_.start[other] >= spans_.end[span]) break;
      if (other == span || !spans_.overlap(span, other)) continue;
      has_above = true;
      if (floor_[other] >= top) continue;
      raised_.push_back({other, floor_[other]});
      floor_[other] = top;
    }
    return has_above;
  }

  void take_back() {
    const auto [span, num_raised] = history_.back();
    history_.pop_back();
    while (raised_.size() > num_raised) {
      floor_[raised_.back().first] = raised_.back().second;
      raised_.pop_back();
    }
    is_placed_[span] = false;
  }

  const Spans& spans_;
  PackOptions options_;
  LayoutRandom random_;
  Clock::time_point started_;
  std::int64_t num_nodes_ = 0, last_node_ = 0;
  bool is_cut_ = false, is_stopped_ = false;
  std::vector<std::int32_t> num_overlaps_, rank_, twin_before_;
  std::vector<std::int64_t> floor_, offsets_, above_;
  std::vector<std::pair<std::int64_t, std::int32_t>> falling_;  // floor, span
  std::vector<bool> is_placed_;
  std::vector<std::pair<std::int32_t, std::size_t>> history_;      // span, raised before it
  std::vector<std::pair<std::int32_t, std::int64_t>> raised_;      // span, floor before
};

}  // namespace lowtide
