// What both layouters share: spans of time with a size, squeezed to the columns of time that matter.
//
//   offset ▲   ┌──────┐ ┌───┐          a column is a step at which something has begun and something ends next:
//          │   │  a   │ │ c │          only there can the live set be largest, and two spans overlap exactly
//          │   ├──────┴─┴─┬─┘          if they share a column (here: {a, b} and {b, c})
//          │   │    b     │
//          └───┴──────────┴────▶ step
//
// Sizes and offsets are in units (of the alignment); no size is 0, no span is empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace lowtide {

struct LayoutError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SplitMix64: the same on every platform, unlike the distributions of <random>.
class LayoutRandom {
 public:
  explicit LayoutRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

struct Spans {
  std::vector<std::int32_t> start;  // first column of each span
  std::vector<std::int32_t> end;    // the column after its last one
  std::vector<std::int64_t> size;   // in units
  std::vector<std::int64_t> width;  // in steps
  std::vector<std::int64_t> load;   // of each column: units live in it
  std::int64_t peak = 0;            // the largest load; no layout can be lower

  std::int32_t num_spans() const { return static_cast<std::int32_t>(size.size()); }
  std::int32_t num_columns() const { return static_cast<std::int32_t>(load.size()); }
  std::int64_t length(std::int32_t i) const { return end[i] - start[i]; }
  bool overlap(std::int32_t a, std::int32_t b) const { return start[a] < end[b] && start[b] < end[a]; }
};

// The last starts before some end: every live set is part of one that is met there.
inline std::vector<std::int64_t> columns_of(const std::vector<std::int64_t>& starts,
                                            const std::vector<std::int64_t>& ends) {
  auto sorted_starts = starts;
  auto sorted_ends = ends;
  std::sort(sorted_starts.begin(), sorted_starts.end());
  std::sort(sorted_ends.begin(), sorted_ends.end());
  std::vector<std::int64_t> columns;
  std::size_t begun = 0;
  for (const auto end : sorted_ends) {
    const auto before = begun;
    while (begun < sorted_starts.size() && sorted_starts[begun] < end) ++begun;
    if (begun > before) columns.push_back(sorted_starts[begun - 1]);
  }
  return columns;
}

inline Spans make_spans(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
                        std::vector<std::int64_t> sizes) {
  if (starts.size() != sizes.size() || ends.size() != sizes.size()) {
    throw LayoutError("starts, ends and sizes differ in length");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (starts[i] >= ends[i]) throw LayoutError("span " + std::to_string(i) + " is empty");
    if (sizes[i] <= 0) throw LayoutError("span " + std::to_string(i) + " has no size");
  }
  const auto columns = columns_of(starts, ends);
  const auto column_from = [&](std::int64_t step) {
    return static_cast<std::int32_t>(std::lower_bound(columns.begin(), columns.end(), step) - columns.begin());
  };
  Spans spans;
  std::vector<std::int64_t> change(columns.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    spans.start.push_back(column_from(starts[i]));
    spans.end.push_back(column_from(ends[i]));
    spans.width.push_back(ends[i] - starts[i]);
    change[spans.start[i]] += sizes[i];
    change[spans.end[i]] -= sizes[i];
  }
  spans.size = std::move(sizes);
  spans.load.resize(columns.size());
  std::partial_sum(change.begin(), change.end() - 1, spans.load.begin());
  for (const auto load : spans.load) spans.peak = std::max(spans.peak, load);
  return spans;
}

// For each span the largest load during it.
inline std::vector<std::int64_t> contention_of(const Spans& spans) {
  std::vector<std::vector<std::int64_t>> largest{spans.load};  // [k][c]: over the columns [c, c + 2^k)
  for (std::size_t width = 1; 2 * width <= spans.load.size(); width *= 2) {
    const auto& half = largest.back();
    std::vector<std::int64_t> whole(spans.load.size() - 2 * width + 1);
    for (std::size_t c = 0; c < whole.size(); ++c) whole[c] = std::max(half[c], half[c + width]);
    largest.push_back(std::move(whole));
  }
  std::vector<std::int64_t> contention;
  contention.reserve(spans.size.size());
  for (std::int32_t i = 0; i < spans.num_spans(); ++i) {
    std::size_t k = 0;
    while ((2LL << k) <= spans.length(i)) ++k;
    contention.push_back(std::max(largest[k][spans.start[i]], largest[k][spans.end[i] - (1LL << k)]));
  }
  return contention;
}

inline std::int64_t footprint_of(const Spans& spans, const std::vector<std::int64_t>& offsets) {
  std::int64_t footprint = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) footprint = std::max(footprint, offsets[i] + spans.size[i]);
  return footprint;
}

}  // namespace lowtide
