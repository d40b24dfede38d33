// What to evict when no hole holds a request: one contiguous window (Coop), or one block after another (DTR and kin).
//
//   │ pinned │ a  h=3 │ free │ b  h=1 │ c  h=2 │ free │ leaf │        request R
//              └───── window 1 ─────┘                              free blocks add size at cost 0;
//                       └───── window 2 ─────────┘                 pinned ones and leaves end a run
//
// Coop: Zhang et al., NeurIPS 2023 (their sliding window, h(t) = C(t)/s(t)). DTR: Kirisame et al., ICLR 2021.
// DTE: MegTaiChi, ICS 2022, which adds the free bytes beside a tensor to its size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

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

// A run of adjacent blocks, both ends included; first == kNone: there is none.
struct Window {
  pool::BlockId first = pool::kNone;
  pool::BlockId last = pool::kNone;
  double cost = std::numeric_limits<double>::infinity();
};

// What must never be evicted has this worth.
inline constexpr double kForbidden = -1.0;

// What a sliding sum may be off by, as a share of the largest number in it.
inline constexpr double kRounding = 1e-10;

// The cheapest run without a forbidden block whose bytes hold `size`. One pass over the blocks, each worth asked once;
// minimal at both ends; of equal costs the lowest address wins.
template <typename Worth>
Window find_window(const pool::Pool& memory, std::int64_t size, Worth&& worth,
                   std::vector<std::pair<pool::BlockId, double>>& run) {
  Window best;
  run.clear();
  std::size_t low = 0;
  std::int64_t held = 0;
  double cost = 0.0;
  double largest = 0.0;   // price since the run began: a sum that has slid past it is off by its rounding
  bool is_exact = true;  // whether `cost` is what adding up the window from its low end gives
  for (pool::BlockId id = memory.first(); id != pool::kNone; id = memory[id].next) {
    const pool::Block& block = memory[id];
    double price = 0.0;
    if (block.owner != pool::kFree) {
      price = block.pins > 0 ? kForbidden : worth(block);
      if (price == kForbidden) {
        run.clear();
        low = 0;
        held = 0;
        cost = largest = 0.0;
        is_exact = true;
        continue;
      }
    }
    run.emplace_back(id, price);
    held += block.size;
    cost += price;
    largest = std::max(largest, price);
    while (held - memory[run[low].first].size >= size) {
      held -= memory[run[low].first].size;
      cost -= run[low].second;
      is_exact &= run[low].second == 0.0;
      ++low;
    }
    if (held < size || cost - kRounding * largest > best.cost) continue;
    if (!is_exact) {
      cost = 0.0;
      for (std::size_t index = low; index < run.size(); ++index) cost += run[index].second;
      is_exact = true;
    }
    if (cost < best.cost) best = Window{run[low].first, id, cost};
  }
  return best;
}

// The block of least worth, or kNone where all are forbidden.
template <typename Worth>
pool::BlockId find_cheapest(const pool::Pool& memory, Worth&& worth) {
  pool::BlockId best = pool::kNone;
  double least = std::numeric_limits<double>::infinity();
  for (pool::BlockId id = memory.first(); id != pool::kNone; id = memory[id].next) {
    const pool::Block& block = memory[id];
    if (block.owner == pool::kFree || block.pins > 0) continue;
    const double price = worth(block);
    if (price == kForbidden || !(price < least)) continue;
    least = price;
    best = id;
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
