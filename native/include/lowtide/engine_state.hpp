// What all parts of the online engine share: the arena, the tape, the clock, the figures and the log. What is done here
// keeps them in step: bytes are given back, a cell comes to own them, it is evicted.
//
//   engine ─▶ in_place ─▶ recompute ─▶ allocate ─▶ release ─▶ state      engine_*.hpp: each knows what is to its right
//                                         └──────▶ survey ──────┘
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/components.hpp"
#include "lowtide/engine_config.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_host.hpp"
#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/pool_small.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Bytes in the pool that no cell owns; cells own theirs under their number.
inline constexpr pool::Owner kRaw = std::int64_t{1} << 40;

inline bool contains(std::span<const CellId> all, CellId id) {
  return std::find(all.begin(), all.end(), id) != all.end();
}

struct EngineState {
  EngineState(const EngineConfig& given, Host& outside)
      : config(resolved(given)), host(outside), memory(config.is_ideal ? kEndless : config.capacity, config.alignment),
        small(memory, {.small_bytes = config.small_bytes, .slab_bytes = config.slab_bytes}) {}
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  EngineConfig config;
  Host& host;
  pool::Pool memory;
  pool::SmallRegion small;
  Tape tape;
  Components components;  // kept up to date where the score asks for them
  EngineStats stats;
  double clock = 0.0;                    // modelled time so far
  std::vector<Event>* events = nullptr;  // the log, where somebody reads it
  bool is_circling = false;              // a recomputation executes the same records again and again
  bool is_holding = false;               // so what it awaits must not go

  bool is_leaf(CellId id) const { return tape.cell(id).producer == kNone; }

  bool may_evict(CellId id) const { return may_evict(tape.cell(id)); }
  bool may_evict(const Cell& subject) const {
    return subject.spot.home == Home::kPool && subject.producer != kNone && subject.locks == 0 && subject.pins == 0 &&
           !(is_holding && subject.awaited > 0);
  }

  double staleness(CellId id) const { return staleness(tape.cell(id)); }
  double staleness(const Cell& subject) const {
    if (is_circling && subject.awaited > 0) return config.staleness_epsilon;
    return std::max(clock - subject.last_access, 0.0) + config.staleness_epsilon;
  }

  // A random number from 0 to 1 for a cell, another one after every eviction (splitmix64 of seed, cell, evictions).
  double chance(CellId id) const {
    std::uint64_t mixed = config.seed;
    for (const auto part : {static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(stats.num_evictions)}) {
      mixed += part + 0x9E3779B97F4A7C15ULL;
      mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
      mixed ^= mixed >> 31;
    }
    return static_cast<double>(mixed >> 11) / 9007199254740992.0;
  }

  // ------------------------------------------------------------------ bytes
  void log(EventKind kind, std::int32_t id, std::int64_t offset, std::int64_t size) {
    if (events != nullptr) events->push_back(Event{kind, id, offset, size});
  }

  // Bytes have been taken.
  void grow(std::int64_t size) {
    stats.resident_bytes += size;
    stats.peak_bytes = std::max(stats.peak_bytes, stats.resident_bytes);
    stats.peak_demand_bytes = std::max(stats.peak_demand_bytes, stats.resident_bytes + stats.evicted_alive_bytes);
  }

  // Give back bytes that no cell owns (scratch, values that autograd drops inside an op).
  void free_spot(const Spot& spot, std::int64_t size) {
    if (spot.home == Home::kSmall || spot.home == Home::kPool) log(EventKind::kGive, kNone, spot.offset, size);
    if (spot.home == Home::kSmall) {
      small.free(spot.offset);
      stats.resident_bytes -= std::max<std::int64_t>(size, 1);
    } else if (spot.home == Home::kPool) {
      stats.resident_bytes -= memory[spot.block].size;
      memory.free(spot.block);
    }
  }

  // A cell owns the bytes at a spot from now on.
  void settle_at(CellId id, const Spot& spot) {
    Cell& subject = tape.cell(id);
    subject.spot = spot;
    if (spot.home == Home::kPool) memory.set_owner(spot.block, id);
    log(EventKind::kOwn, id, spot.offset, subject.size);
  }

  // Neither evict a cell nor move it, until it is unpinned as often.
  void pin_block(CellId id) {
    Cell& subject = tape.cell(id);
    if (subject.spot.home == Home::kPool) memory.pin(subject.spot.block);
    ++subject.pins;
  }

  // ------------------------------------------------------------------ evictions
  // The policy's doing: its bytes are wanted.
  void evict(CellId id) {
    Cell& subject = tape.cell(id);
    ++stats.num_evictions;
    stats.bytes_evicted += memory[subject.spot.block].size;
    log(EventKind::kEvict, id, subject.spot.offset, memory[subject.spot.block].size);
    drop(id);
  }

  // A cell that can be recomputed loses its bytes.
  void drop(CellId id) {
    count_absent(id, 1);
    host.evicted(id);
    const Spot spot = tape.cell(id).spot;
    tape.cell(id).spot = Spot{};
    free_spot(spot, tape.cell(id).size);
    tape.forget_costs(id);
    if (config.score == Score::kDtrEq) components.add(tape, id);
  }

  // A value comes or goes; what the program does not hold does not count.
  void count_absent(CellId id, std::int64_t sign) {
    if (tape.cell(id).alive) stats.evicted_alive_bytes += sign * tape.cell(id).size;
  }

 private:
  static constexpr std::int64_t kEndless = std::int64_t{1} << 50;
};

}  // namespace lowtide::online
