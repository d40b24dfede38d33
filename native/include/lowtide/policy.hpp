// What to evict when no hole holds a request: one contiguous window (Coop), or one block after another (DTR and kin).
//
//   │ pinned │ a  h=3 │ free │ b  h=1 │ c  h=2 │ free │ leaf │        request R
//              └───── window 1 ─────┘                              free blocks add size at cost 0;
//                       └───── window 2 ─────────┘                 pinned ones and leaves end a run
//
// Coop: Zhang et al., NeurIPS 2023 (their sliding window, h(t) = C(t)/s(t)). DTR: Kirisame et al., ICLR 2021.
// DTE: MegTaiChi, ICS 2022, which adds the free bytes beside a tensor to its size. Departure: what a window holds beyond
// the request may count (`surplus`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "lowtide/pool.hpp"

namespace lowtide::online {

enum class Method : std::uint8_t { kWindow, kOneByOne };
enum class Score : std::uint8_t {
  kCoop,             // C / s: projected cost per staleness
  kDtr,              // C / (s * size)
  kDte,              // C / (s * (size + free bytes beside it))
  kLru,              // 1 / s
  kSize,             // 1 / size
  kRandom,
  kDtrNeighborhood,  // DTR's exact e*: absent ancestors and descendants, / (s * size)
  kDtrEq,            // the same by union-find (components.hpp)
  kLocal,            // own cost / (s * size)
  kMsps,             // C / size
};

// What must never be evicted has this worth.
inline constexpr double kForbidden = -1.0;

// What a sliding sum may be off by, as a share of the largest number in it.
inline constexpr double kRounding = 1e-10;

enum class Standing : std::uint8_t {
  kHole,
  kOffered,  // a value that may be evicted
  kMovable,  // it must stay, but may lie elsewhere
  kFixed,
};

// A block as a search sees it. Searches write down all blocks once, in address order and side by side, and do the rest
// with these rows.
struct Row {
  std::int64_t size = 0;  // bytes
  double worth = 0.0;     // what is lost by evicting it; 0: a hole; kForbidden: it must not go
  std::int32_t cell = -1;  // that owns it; -1: none does
  Standing standing = Standing::kHole;
};

// A run of adjacent rows, both ends included; first == kNoRow: there is none.
inline constexpr std::size_t kNoRow = std::numeric_limits<std::size_t>::max();

struct Window {
  std::size_t first = kNoRow;
  std::size_t last = kNoRow;
  double cost = std::numeric_limits<double>::infinity();
};

// How many times a request `bytes` count for. What is left over serves requests to come, up to `surplus` in all.
inline double credit_of(std::int64_t bytes, std::int64_t size, double surplus) {
  const auto request = static_cast<double>(size);
  return std::max(std::min(static_cast<double>(bytes), surplus * request) / request, 1.0);
}

// The cheapest run without a forbidden row whose bytes hold `size`, in one pass; minimal at both ends; of equal costs
// the lowest address wins. Cost is by request that the bytes count for (`surplus` 1: all runs count for one).
inline Window find_window(std::span<const Row> rows, std::int64_t size, double surplus = 1.0) {
  Window best;
  std::size_t low = 0;
  std::int64_t held = 0;
  double cost = 0.0;
  double largest = 0.0;   // worth since the run began: a sum that has slid past it is off by its rounding
  bool is_exact = true;  // whether `cost` is what adding up the window from its low end gives
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Row& row = rows[index];
    if (row.worth == kForbidden) {
      low = index + 1;
      held = 0;
      cost = largest = 0.0;
      is_exact = true;
      continue;
    }
    held += row.size;
    cost += row.worth;
    largest = std::max(largest, row.worth);
    while (held - rows[low].size >= size) {
      held -= rows[low].size;
      cost -= rows[low].worth;
      is_exact &= rows[low].worth == 0.0;
      ++low;
    }
    if (held < size || cost - kRounding * largest > surplus * best.cost) continue;
    if (!is_exact) {
      cost = 0.0;
      for (std::size_t member = low; member <= index; ++member) cost += rows[member].worth;
      is_exact = true;
    }
    const double share = cost / credit_of(held, size, surplus);
    if (share < best.cost) best = Window{low, index, share};
  }
  return best;
}

// The row of least worth, or kNoRow where none may go.
inline std::size_t find_cheapest(std::span<const Row> rows) {
  std::size_t best = kNoRow;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Row& row = rows[index];
    if (row.standing != Standing::kOffered || !(row.worth < least)) continue;
    least = row.worth;
    best = index;
  }
  return best;
}

// Free bytes right beside a block.
inline std::int64_t free_beside(const pool::Pool& memory, const pool::Block& block) {
  std::int64_t bytes = 0;
  for (const pool::BlockId id : {block.previous, block.next}) {
    if (id != pool::kNone && memory[id].owner == pool::kFree) bytes += memory[id].size;
  }
  return bytes;
}

}  // namespace lowtide::online
