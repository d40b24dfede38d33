// Exact packing: is there a layout of at most `capacity`? Written after the ideas of Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023). His buffers are our spans, his sections our
// columns.
//
// Of all layouts that fit, take one whose sum of offsets is least. In it every span rests on another one or on the
// ground, and none could be moved down, alone. So it suffices to look for layouts like that, from the bottom up. The
// floor of an unplaced span is the highest top of the placed spans that it overlaps. Again and again one span is chosen
// that no unplaced one fits beneath, and either placed at its floor or barred until another one raises that floor.
//   dominance        a barred span must be raised; if all unplaced spans that it overlaps start at its top at the lowest,
//                    it could be moved down to its floor.
//   inference        in every column: f plus the sizes of the unplaced spans that lie at f or higher must not exceed the
//                    capacity, for every f. Barred spans lie on the lowest top that another can have, at least.
//   dynamic order    the lowest floor first; then the least slack (room left in its tightest column) by
//                    that column's weight (see restarts); then the ranks.
//   decomposition    spans that no chain of overlaps connects any more are packed apart; if one group cannot, no other
//                    choice within the others helps.
//   twins            equal spans are placed by rank.
//   hatless          a span placed with nothing unplaced that overlaps it is in nobody's way: no other place for it helps.
//   restarts         with other ranks and more nodes. Columns in which the search failed gain weight, and spans in heavy
//                    columns rank first (Boussemart et al., "Boosting systematic search by weighting constraints", 2004).
// Departures: the paper places spans by rising offset through the whole of time (canonical solutions) and skips what it
// has passed (monotonic floors). Barring does the same span by span; inference looks at every f, not the lowest floor
// alone; the paper runs its orders round robin and learns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
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
      : spans_(spans),
        options_(std::move(options)),
        random_(options_.seed),
        started_(Clock::now()),
        fail_weight_(spans.load.size(), 1.0),
        columns_(spans.load.size()),
        size_above_(spans.load.size(), 0),
        slack_(spans.load.size(), 0),
        lowest_offset_(spans.size.size(), 0) {}

  PackOutcome run() {
    if (spans_.peak > options_.capacity) return {PackAnswer::kImpossible, {}, 0, 0};
    if (spans_.num_spans() > kMostSpans) return {};
    contention_ = contention_of(spans_);
    count_overlaps();
    auto limit = static_cast<double>(kFirstNodes);
    for (std::size_t round = 0;; ++round) {
      const auto answer = search(ranking(round), static_cast<std::int64_t>(limit));
      if (answer == PackAnswer::kPacked) return {answer, offsets_, footprint_of(spans_, offsets_), num_nodes_};
      if (answer == PackAnswer::kImpossible) return {answer, {}, 0, num_nodes_};
      if (is_stopped_ || num_nodes_ >= options_.max_nodes) return {PackAnswer::kGaveUp, {}, 0, num_nodes_};
      if (round % (2 * kNumOrders) == 2 * kNumOrders - 1) limit *= kGrowth;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Group = std::vector<std::int32_t>;
  static constexpr std::int64_t kFirstNodes = 500;  // of the first restarts
  static constexpr double kGrowth = 1.1;             // good ranks need few nodes: many restarts beat long ones
  static constexpr std::int64_t kNodesBetweenLooks = 512;
  static constexpr std::size_t kNumOrders = 6;
  static constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max() / 4;

  struct Column {  // the lowest top that an unplaced span in it can have, whose that is, and the lowest of all others
    std::int64_t lowest_top, other_top;
    std::int32_t whose;
  };
  struct Placing {
    std::int32_t span;
    std::size_t num_raised;  // before it
  };
  struct Raising {
    std::int32_t span;
    std::int64_t floor;  // before it
    bool was_barred;
  };

  void count_overlaps() {
    for (std::int32_t i = 0; i < spans_.num_spans(); ++i) {
      std::int32_t count = 0;
      for (std::int32_t j = 0; j < spans_.num_spans(); ++j) count += spans_.overlap(i, j);
      num_overlaps_.push_back(count);
    }
  }

  // Ranks by falling importance (his W, A, T are width, area, total), or, every other time, by where it failed before.
  std::vector<std::int32_t> ranking(std::size_t round) {
    const bool is_learned = round / kNumOrders % 2 == 1;
    std::vector<std::array<double, 3>> key;
    for (std::int32_t i = 0; i < spans_.num_spans(); ++i) {
      key.push_back(is_learned ? learned_key(i, round) : plain_key(i, round % kNumOrders));
    }
    Group order(spans_.size.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key[a] > key[b]; });
    std::vector<std::int32_t> rank(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = static_cast<std::int32_t>(k);
    return rank;
  }

  std::array<double, 3> plain_key(std::int32_t i, std::size_t which) const {
    const auto width = static_cast<double>(spans_.width[i]), total = static_cast<double>(contention_[i]);
    const auto size = static_cast<double>(spans_.size[i]), area = width * size;
    const auto overlaps = static_cast<double>(num_overlaps_[i]);
    switch (which) {
      case 0: return {total, width, area};
      case 1: return {total, overlaps, width};
      case 2: return {total, area, width};
      case 3: return {area, width, total};
      case 4: return {width, area, total};
      default: return {size, width, total};
    }
  }

  std::array<double, 3> learned_key(std::int32_t i, std::size_t round) {
    const auto width = static_cast<double>(spans_.width[i]), size = static_cast<double>(spans_.size[i]);
    double sum = 0;
    for (auto c = spans_.start[i]; c < spans_.end[i]; ++c) sum += fail_weight_[c];
    const std::array<double, 3> weights{heaviest_column(i), sum, sum * size};
    const auto noise = 1.0 + 0.1 * static_cast<double>(random_.below(1000)) / 1000.0;
    return {weights[round % 3] * noise, width, width * size};
  }

  double heaviest_column(std::int32_t span) const {
    return *std::max_element(fail_weight_.begin() + spans_.start[span], fail_weight_.begin() + spans_.end[span]);
  }

  PackAnswer search(std::vector<std::int32_t> rank, std::int64_t limit) {
    const auto num_spans = spans_.size.size();
    rank_ = std::move(rank);
    twin_before_ = twins();
    floor_.assign(num_spans, 0);
    offsets_.assign(num_spans, 0);
    is_placed_.assign(num_spans, false);
    is_barred_.assign(num_spans, false);
    placings_.clear();
    raisings_.clear();
    last_node_ = std::min(options_.max_nodes, num_nodes_ + limit);
    is_cut_ = false;
    Group all(num_spans);
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return spans_.start[a] < spans_.start[b]; });
    if (pack_groups(all)) return PackAnswer::kPacked;
    return is_cut_ ? PackAnswer::kGaveUp : PackAnswer::kImpossible;
  }

  // For each span the equal one that must be placed before it, or -1.
  std::vector<std::int32_t> twins() const {
    Group order(spans_.size.size());
    std::iota(order.begin(), order.end(), 0);
    const auto shape = [&](auto i) { return std::tuple(spans_.start[i], spans_.end[i], spans_.size[i]); };
    std::sort(order.begin(), order.end(),
              [&](auto a, auto b) { return std::tuple(shape(a), rank_[a]) < std::tuple(shape(b), rank_[b]); });
    std::vector<std::int32_t> before(order.size(), -1);
    for (std::size_t k = 1; k < order.size(); ++k) {
      if (shape(order[k - 1]) == shape(order[k])) before[order[k]] = order[k - 1];
    }
    return before;
  }

  // Pack unplaced spans, sorted by start, group by group; what was placed in vain is taken back.
  bool pack_groups(const Group& spans) {
    const auto num_placed = placings_.size();
    std::size_t begin = 0;
    while (begin < spans.size()) {
      std::size_t end = begin + 1;
      auto reach = spans_.end[spans[begin]];
      for (; end < spans.size() && spans_.start[spans[end]] < reach; ++end) {
        reach = std::max(reach, spans_.end[spans[end]]);
      }
      if (!pack(Group(spans.begin() + begin, spans.begin() + end))) {
        while (placings_.size() > num_placed) take_back();
        return false;
      }
      begin = end;
    }
    return true;
  }

  // Pack a group of unplaced spans, sorted by start and connected by overlaps.
  bool pack(const Group& group) {
    Group barred_here;
    const bool is_packed = place_or_bar(group, barred_here);
    if (!is_packed) {
      for (const auto span : barred_here) is_barred_[span] = false;
    }
    return is_packed;
  }

  bool place_or_bar(const Group& group, Group& barred_here) {
    while (true) {
      if (++num_nodes_ > last_node_ || (num_nodes_ % kNodesBetweenLooks == 0 && is_over())) {
        is_cut_ = true;
        return false;
      }
      if (!may_fit(group)) return false;
      const auto span = choose(group);
      if (span < 0) return false;
      const bool is_hatless = !place(span, group);
      Group rest;
      rest.reserve(group.size() - 1);
      std::copy_if(group.begin(), group.end(), std::back_inserter(rest), [&](auto other) { return other != span; });
      if (pack_groups(rest)) return true;
      take_back();
      if (is_cut_ || is_hatless) return false;
      is_barred_[span] = true;
      barred_here.push_back(span);
    }
  }

  bool is_over() {
    if (std::chrono::duration<double>(Clock::now() - started_).count() > options_.seconds) is_stopped_ = true;
    if (options_.should_stop && options_.should_stop()) is_stopped_ = true;
    return is_stopped_;
  }

  // Whether the unplaced spans may fit, as far as their lowest offsets tell.
  bool may_fit(const Group& group) {
    first_column_ = spans_.start[group.front()];
    last_column_ = first_column_;
    bool has_barred = false;
    for (const auto span : group) {
      last_column_ = std::max(last_column_, spans_.end[span]);
      lowest_offset_[span] = floor_[span];
      has_barred |= is_barred_[span];
    }
    find_lowest_tops(group);
    if (has_barred && !raise_barred(group)) return false;
    return has_room(group) && (!has_barred || can_raise_barred(group));
  }

  void find_lowest_tops(const Group& group) {
    std::fill(columns_.begin() + first_column_, columns_.begin() + last_column_, Column{kHigh, kHigh, -1});
    for (const auto span : group) {
      const auto top = lowest_offset_[span] + spans_.size[span];
      for (auto c = spans_.start[span]; c < spans_.end[span]; ++c) {
        auto& column = columns_[c];
        if (top < column.lowest_top) {
          column = {top, column.lowest_top, span};
        } else {
          column.other_top = std::min(column.other_top, top);
        }
      }
    }
  }

  // The lowest top that an unplaced span that overlaps this one can have.
  std::int64_t lowest_other_top(std::int32_t span) const {
    auto lowest = kHigh;
    for (auto c = spans_.start[span]; c < spans_.end[span]; ++c) {
      const auto& column = columns_[c];
      lowest = std::min(lowest, column.whose == span ? column.other_top : column.lowest_top);
    }
    return lowest;
  }

  // Somebody must come beneath a barred span. Twice, as barred spans may come beneath one another.
  bool raise_barred(const Group& group) {
    for (int pass = 0; pass < 2; ++pass) {
      bool is_changed = false;  // in a way that lowest tops can show
      for (const auto span : group) {
        if (!is_barred_[span]) continue;
        const auto lowest = std::max(lowest_offset_[span], lowest_other_top(span));
        if (lowest > options_.capacity - spans_.size[span]) return false;
        is_changed |= lowest > lowest_offset_[span] && is_lowest_somewhere(span);
        lowest_offset_[span] = lowest;
      }
      if (!is_changed) break;
      find_lowest_tops(group);
    }
    return true;
  }

  bool is_lowest_somewhere(std::int32_t span) const {
    return std::any_of(columns_.begin() + spans_.start[span], columns_.begin() + spans_.end[span],
                       [&](const Column& column) { return column.whose == span; });
  }

  bool has_room(const Group& group) {
    falling_.clear();
    for (const auto span : group) falling_.push_back({lowest_offset_[span], span});
    std::sort(falling_.begin(), falling_.end(), std::greater<>());
    std::fill(size_above_.begin() + first_column_, size_above_.begin() + last_column_, 0);
    for (const auto& [offset, span] : falling_) {
      const auto room = options_.capacity - offset;
      for (auto c = spans_.start[span]; c < spans_.end[span]; ++c) {
        size_above_[c] += spans_.size[span];
        slack_[c] = room - size_above_[c];
        if (slack_[c] >= 0) continue;
        fail_weight_[c] += 1.0;
        return false;
      }
    }
    return true;
  }

  // Whether each barred span has an unplaced one that can come beneath its top at its floor.
  bool can_raise_barred(const Group& group) const {
    return std::all_of(group.begin(), group.end(), [&](auto span) {
      if (!is_barred_[span]) return true;
      const auto top = floor_[span] + spans_.size[span];
      return std::any_of(group.begin(), group.end(), [&](auto other) {
        return other != span && lowest_offset_[other] < top && spans_.overlap(span, other);
      });
    });
  }

  // The next span to place or bar: one that no other can come beneath; -1 if there is none.
  std::int32_t choose(const Group& group) const {
    std::int32_t best = -1;
    std::tuple<std::int64_t, double, std::int32_t> best_key;
    for (const auto span : group) {
      const auto twin = twin_before_[span];
      if (is_barred_[span] || (twin >= 0 && !is_placed_[twin])) continue;
      if (best >= 0 && floor_[span] > std::get<0>(best_key)) continue;
      const std::tuple key(floor_[span], tightness(span), rank_[span]);
      if ((best >= 0 && best_key <= key) || lowest_other_top(span) <= floor_[span]) continue;
      best = span;
      best_key = key;
    }
    return best;
  }

  double tightness(std::int32_t span) const {
    const auto slack = *std::min_element(slack_.begin() + spans_.start[span], slack_.begin() + spans_.end[span]);
    return static_cast<double>(slack + 1) / heaviest_column(span);
  }

  // Place a span at its floor; true if something unplaced overlaps it.
  bool place(std::int32_t span, const Group& group) {
    const auto top = floor_[span] + spans_.size[span];
    offsets_[span] = floor_[span];
    is_placed_[span] = true;
    placings_.push_back({span, raisings_.size()});
    bool has_above = false;
    for (const auto other : group) {
      if (spans_.start[other] >= spans_.end[span]) break;
      if (other == span || !spans_.overlap(span, other)) continue;
      has_above = true;
      if (floor_[other] >= top) continue;
      raisings_.push_back({other, floor_[other], is_barred_[other]});
      floor_[other] = top;
      is_barred_[other] = false;
    }
    return has_above;
  }

  void take_back() {
    const auto [span, num_raised] = placings_.back();
    placings_.pop_back();
    is_placed_[span] = false;
    while (raisings_.size() > num_raised) {
      const auto [raised, floor, was_barred] = raisings_.back();
      raisings_.pop_back();
      floor_[raised] = floor;
      is_barred_[raised] = was_barred;
    }
  }

  const Spans& spans_;
  PackOptions options_;
  LayoutRandom random_;
  Clock::time_point started_;
  std::int64_t num_nodes_ = 0, last_node_ = 0;
  bool is_cut_ = false, is_stopped_ = false;
  std::int32_t first_column_ = 0, last_column_ = 0;  // of the group looked at
  std::vector<std::int32_t> num_overlaps_, rank_, twin_before_;
  std::vector<std::int64_t> contention_, floor_, offsets_;
  std::vector<bool> is_placed_, is_barred_;
  std::vector<Placing> placings_;
  std::vector<Raising> raisings_;
  std::vector<double> fail_weight_;        // by column
  std::vector<Column> columns_;            // of the group looked at, as are the next four
  std::vector<std::int64_t> size_above_;   // by column
  std::vector<std::int64_t> slack_;        // by column: room left above what lies there at the lowest
  std::vector<std::int64_t> lowest_offset_;  // by span: no layout that is left has it lower
  std::vector<std::pair<std::int64_t, std::int32_t>> falling_;  // lowest offset, span
};

}  // namespace lowtide
