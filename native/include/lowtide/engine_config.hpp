// The online engine's settings, and the figures that it reports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"

namespace lowtide::online {

// Where a value belongs in the pool.
enum class Temper : std::uint8_t { kExpensive, kCheap, kResident };

enum class Compaction : std::uint8_t { kNever, kLastResort, kWhenCheaper };

// Coop's 10 KiB, meant for arenas of gigabytes, in proportion: slabs cannot move, and would cut small arenas to pieces.
inline constexpr std::int64_t kAutomatic = -1;

constexpr std::int64_t automatic_small_bytes(std::int64_t capacity) {
  return std::clamp<std::int64_t>(capacity / 65536 / 64 * 64, 256, 10 * 1024);
}

// Room for eight small requests, but no more than 64 KiB; where the arena is large, a 64th of it.
constexpr std::int64_t automatic_slab_bytes(std::int64_t capacity, std::int64_t alignment, std::int64_t small_bytes) {
  constexpr std::int64_t kLargest = 64 * 1024;
  const std::int64_t bytes = std::max(std::min(8 * small_bytes, kLargest), std::min(capacity / 64, kLargest));
  return std::max(bytes / alignment, std::int64_t{1}) * alignment;
}

struct EngineConfig {
  std::int64_t capacity = 0;     // bytes
  std::int64_t alignment = 64;   // bytes
  std::int64_t small_bytes = kAutomatic;  // requests up to this many are small; 0: none is
  std::int64_t slab_bytes = kAutomatic;   // small requests share blocks of this many
  Method method = Method::kWindow;
  Score score = Score::kCoop;
  double surplus = 1.0;  // windows: how many requests' worth of bytes count (find_window)
  bool is_ideal = false;  // counts bytes only, as if addresses did not matter (the original DTR)
  bool is_copy_on_write = false;  // an op in place copies first, instead of leaving a ghost
  bool is_two_tiered = true;      // values made in backward are evicted last
  bool keeps_dead = false;        // dead-but-needed values stay until their bytes are wanted
  bool holds_awaited = true;      // a recomputation that goes in circles keeps what its records still read
  Compaction compaction = Compaction::kWhenCheaper;
  double copy_cost_per_byte = 0.2;  // in the clock's unit, for compaction: each byte is read and written
  pool::Place places[3] = {{pool::End::kLow, pool::Fit::kBest},
                           {pool::End::kHigh, pool::Fit::kFirst},
                           {pool::End::kLow, pool::Fit::kFirst}};  // by Temper
  double staleness_epsilon = 1.0;
  std::int32_t max_depth = 1000;  // longer chains of records are cut
  double max_cost = std::numeric_limits<double>::infinity();  // clock at which the run counts as thrashing
  std::uint64_t seed = 0;
};

// What is automatic, worked out.
inline EngineConfig resolved(EngineConfig config) {
  if (config.small_bytes == kAutomatic) config.small_bytes = automatic_small_bytes(config.capacity);
  if (config.slab_bytes == kAutomatic) {
    config.slab_bytes = automatic_slab_bytes(config.capacity, config.alignment, config.small_bytes);
  }
  return config;
}

struct EngineStats {
  std::int64_t num_calls = 0, num_recomputes = 0, num_evictions = 0, num_searches = 0, num_compactions = 0;
  std::int64_t bytes_evicted = 0, bytes_moved = 0, resident_bytes = 0, peak_bytes = 0, num_frozen = 0;
  std::int64_t evicted_alive_bytes = 0;  // of values that the program holds, absent now
  std::int64_t peak_demand_bytes = 0;    // most of these and the resident ones: what no eviction would have taken
  double base_cost = 0.0, recompute_cost = 0.0, move_cost = 0.0, fragmentation_sum = 0.0;
  double search_seconds = 0.0;  // by the host's clock: finding, evicting and finding again, without sliding
  double slide_seconds = 0.0;
};

}  // namespace lowtide::online
