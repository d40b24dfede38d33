// Sliding blocks together: what to evict for it, and where it moves least.
//
//   │ fixed │ a │ hole │ b │ hole │ c │ fixed │      request R: evict what is cheapest per byte between two fixed blocks
//           │ a │ b │ . . . R . . . . │              (here c) until the bytes suffice, then slide what stays
//
// Lowtide's own; no paper has it. Standard library only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lowtide/policy.hpp"

namespace lowtide::online {

// What would have to go: positions of rows, the dearest per byte first.
struct Squeeze {
  double worth = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> victims;
  bool is_found() const { return worth < std::numeric_limits<double>::infinity(); }
};

// Finds squeezes; keeps its memory from one search to the next.
class Squeezer {
 public:
  // Of the runs between fixed rows, the one where evicting what is cheapest per byte costs least; of equal ones the
  // lowest. The reference lasts until the next call.
  const Squeeze& plan(std::span<const Row> rows, std::int64_t size) {
    best_.worth = std::numeric_limits<double>::infinity();
    best_.victims.clear();
    for (std::size_t begin = 0; begin < rows.size();) {
      std::int64_t free = 0, offered = 0;
      std::size_t end = begin;
      for (; end < rows.size() && rows[end].standing != Standing::kFixed; ++end) {
        if (rows[end].standing == Standing::kHole) free += rows[end].size;
        if (rows[end].standing == Standing::kOffered) offered += rows[end].size;
      }
      if (free + offered >= size) try_run(rows, begin, end, size, free);
      begin = end + 1;
    }
    return best_;
  }

 private:
  struct Candidate {
    double per_byte;
    std::size_t row;
    bool operator<(const Candidate& other) const {
      return per_byte < other.per_byte || (per_byte == other.per_byte && row < other.row);
    }
  };

  // The cheapest per byte that suffice so far are a heap with the dearest on top: what is dearer still is passed over.
  void try_run(std::span<const Row> rows, std::size_t begin, std::size_t end, std::int64_t size, std::int64_t free) {
    taken_.clear();
    for (std::size_t index = begin; index < end; ++index) {
      const Row& row = rows[index];
      if (row.standing != Standing::kOffered) continue;
      const double per_byte = row.worth / static_cast<double>(row.size);
      if (free >= size && (taken_.empty() || !(per_byte < taken_.front().per_byte))) continue;
      taken_.push_back({per_byte, index});
      std::push_heap(taken_.begin(), taken_.end());
      free += row.size;
      while (!taken_.empty() && free - rows[taken_.front().row].size >= size) {
        free -= rows[taken_.front().row].size;
        std::pop_heap(taken_.begin(), taken_.end());
        taken_.pop_back();
      }
    }
    std::sort_heap(taken_.begin(), taken_.end());
    double worth = 0.0;
    victims_.clear();
    for (auto dearest = taken_.rbegin(); dearest != taken_.rend(); ++dearest) {  // it may not be needed after all
      const Row& row = rows[dearest->row];
      if (free - row.size >= size) {
        free -= row.size;
        continue;
      }
      worth += row.worth;
      victims_.push_back(dearest->row);
    }
    if (!(worth < best_.worth)) return;
    best_.worth = worth;
    best_.victims.swap(victims_);
  }

  Squeeze best_;
  std::vector<Candidate> taken_;
  std::vector<std::size_t> victims_;
};

// A stretch to slide together: its first and last row, and the bytes that move.
struct Slide {
  std::size_t first = kNoRow, last = kNoRow;
  std::int64_t owned = std::numeric_limits<std::int64_t>::max();
};

// Where sliding makes a hole of `size` bytes: the stretch whose owned bytes are fewest, of equal ones the lowest.
inline Slide find_slide(std::span<const Row> rows, std::int64_t size) {
  Slide best;
  std::size_t low = 0;
  std::int64_t free = 0, owned = 0;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Row& row = rows[index];
    if (row.standing == Standing::kFixed) {
      low = index + 1;
      free = owned = 0;
      continue;
    }
    (row.standing == Standing::kHole ? free : owned) += row.size;
    for (; low <= index; ++low) {
      const bool was_free = rows[low].standing == Standing::kHole;
      if (was_free ? free - rows[low].size < size : free < size) break;
      (was_free ? free : owned) -= rows[low].size;
    }
    if (free < size || owned >= best.owned) continue;
    best = Slide{low, index, owned};
  }
  return best;
}

}  // namespace lowtide::online
