// The online engine: keeps the bytes of a running program within an arena by evicting and recomputing.
//
//   begin(inputs) ── gather: what is absent is recomputed, then everything is locked
//   allocate(R)   ── no hole? the policy names victims, they are evicted, the request is served from their place
//   end(outputs)  ── a record is kept, outputs become cells, locks are given back
//   release(cell) ── the program's last reference is gone
//
// It knows no tensors: a Host does what only the outside can do (run an op again, forget a pointer, move bytes). The
// simulator's host does nothing; the runtime's is PyTorch. So both decide alike, call for call.
//
// Sources: Coop (NeurIPS 2023) for the window, the two ends and recomputable in-place; DTR (ICLR 2021) for records and
// dead-but-needed values. Departures: freezing of live frontiers, two tiers, capped chains, compaction, recomputations
// that go in circles (docs/decisions/online-engine.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/components.hpp"
#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/pool_small.hpp"
#include "lowtide/squeeze.hpp"
#include "lowtide/tape.hpp"

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

struct EngineStats {
  std::int64_t num_calls = 0, num_recomputes = 0, num_evictions = 0, num_searches = 0, num_compactions = 0;
  std::int64_t bytes_evicted = 0, bytes_moved = 0, resident_bytes = 0, peak_bytes = 0, num_frozen = 0;
  std::int64_t evicted_alive_bytes = 0;  // of values that the program holds, absent now
  std::int64_t peak_demand_bytes = 0;    // most of these and the resident ones: what no eviction would have taken
  double base_cost = 0.0, recompute_cost = 0.0, move_cost = 0.0, fragmentation_sum = 0.0;
  double search_seconds = 0.0;  // by the host's clock: finding, evicting and finding again, without sliding
  double slide_seconds = 0.0;
};

class OutOfMemory : public std::runtime_error {
 public:
  std::int64_t requested, capacity, resident, locked, unevictable, free, largest_hole;
  OutOfMemory(std::int64_t requested_, std::int64_t capacity_, std::int64_t resident_, std::int64_t locked_,
              std::int64_t unevictable_, std::int64_t free_, std::int64_t largest_hole_)
      : std::runtime_error("no room for " + std::to_string(requested_) + " bytes in an arena of " +
                           std::to_string(capacity_)),
        requested(requested_), capacity(capacity_), resident(resident_), locked(locked_), unevictable(unevictable_),
        free(free_), largest_hole(largest_hole_) {}
};

class Thrashing : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What only the outside can do. No method may call begin, end or release.
class Host {
 public:
  virtual ~Host() = default;
  // Execute a record again. Its inputs are resident and locked. Fill `spots` with a fresh spot per output (through
  // Engine::allocate), except those already set: they take over an input's bytes. If it throws, the engine gives back
  // the spots that are set.
  virtual void replay(RecordId record, std::vector<Spot>& spots) = 0;
  // What the replay that has just failed for want of room held and asked for, scratch included: bytes, 0: not known.
  virtual std::int64_t shortage() const { return 0; }
  virtual void evicted(CellId) {}                                        // its bytes are about to be reused
  virtual void refilled(CellId) {}                                       // its bytes are at cell.spot
  virtual void copy(const Spot&, const Spot&, std::int64_t) {}           // bytes, before an op in place
  virtual void moved(CellId, std::int64_t, std::int64_t, std::int64_t) {}  // from, to, bytes (may overlap)
  virtual void take_out(CellId) {}     // copy a small leaf's bytes out of the arena, before they are overwritten
  virtual void cell_gone(CellId) {}
  virtual void record_gone(RecordId) {}
  // The clock that searches are timed by, in seconds.
  virtual double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

// What the log tells. Bytes are taken and given back nameless; a cell owns those at its offset from kOwn on, until they
// are given back, or another cell owns them (an op in place).
enum class EventKind : std::uint8_t {
  kCall,       // id: record (kNone: none was kept); its outputs own their bytes by now
  kRecompute,  // id: record; what its outputs come to own, and what nobody wants of them, follows
  kTake,       // bytes at offset; id: 1 where they are small
  kGive,       // bytes at offset
  kOwn,        // id: cell
  kEvict,      // id: cell; its bytes are given back next
  kMove,       // id: cell; offset: the new one
  kTakeOut,    // id: cell; a copy of it goes on outside the arena
  kGone,       // id: cell; its number may be given to another
  kBegin,      // id: whatever the host numbers its calls by
  kBind,       // id: cell; offset: whatever the host calls it
  kRelease,    // offset: whatever the host calls it
  kRecomputed,  // id: record; all that follows kRecompute has been said
};

inline const char* name_of(EventKind kind) {
  static constexpr const char* kNames[] = {"call",     "recompute", "take", "give",  "own",  "evict",     "move",
                                           "take_out", "gone",      "begin", "bind", "release", "recomputed"};
  return kNames[static_cast<std::size_t>(kind)];
}

struct Event {
  EventKind kind;
  std::int32_t id;
  std::int64_t offset, size;
};

class Engine {
 public:
  struct Output {
    std::int64_t size = 0;         // bytes
    Spot spot;                     // where the op put it (ignored for overwriting ones)
    CellId overwrites = kNone;     // the input whose bytes it took over
    bool is_leaf = false;          // can't be recomputed (opaque kernels)
  };
  struct Call {
    double cost = 0.0;
    bool is_backward = false;
    bool is_replayable = true;
    Temper temper = Temper::kExpensive;
  };
  // Chooses victims in the policy's stead: cells to evict for `size` bytes, empty: gives up.
  using Chooser = std::function<std::vector<CellId>(std::int64_t size, bool may_take_backward)>;

  Engine(const EngineConfig& config, Host& host)
      : config_(resolved(config)), host_(host),
        pool_(config_.is_ideal ? kEndless : config_.capacity, config_.alignment),
        small_(pool_, small_options(config_)) {
    tape_.on_cell_gone = [this](CellId id) { forget(id); };
    tape_.on_record_gone = [this](RecordId id) { host_.record_gone(id); };
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineConfig& config() const { return config_; }
  const EngineStats& stats() const { return stats_; }
  const pool::Pool& memory() const { return pool_; }
  Tape& tape() { return tape_; }
  const Cell& cell(CellId id) const { return tape_.cell(id); }
  double clock() const { return clock_; }
  std::int64_t peak_bytes() const { return stats_.peak_bytes; }
  void set_chooser(Chooser chooser) { chooser_ = std::move(chooser); }
  void set_log(std::vector<Event>* log) { log_ = log; }
  void set_max_cost(double cost) { config_.max_cost = cost; }

  // ------------------------------------------------------------------ memory
  // Bytes for a running op: evicts when it must, never recomputes. Throws OutOfMemory.
  Spot allocate(std::int64_t size, Temper temper) {
    size = std::max<std::int64_t>(size, 1);
    if (config_.is_ideal) make_bytes(size);
    Spot spot;
    if (size <= config_.small_bytes) {
      spot.offset = small_.allocate(size, kRaw);
      if (spot.offset < 0 && make_slab_room()) spot.offset = small_.allocate(size, kRaw);
      if (spot.offset >= 0) {
        spot.home = Home::kSmall;
        grow(size);
        log(EventKind::kTake, 1, spot.offset, size);
        return spot;
      }
    }
    const pool::Place place = config_.places[static_cast<std::size_t>(temper)];
    spot.block = pool_.allocate(size, kRaw, place);
    if (spot.block == pool::kNone) spot.block = make_room(size, place);
    spot.home = Home::kPool;
    spot.offset = pool_[spot.block].offset;
    grow(pool_[spot.block].size);
    log(EventKind::kTake, 0, spot.offset, pool_[spot.block].size);
    return spot;
  }

  // Give back bytes that no cell owns (scratch, values that autograd drops inside an op).
  void free_spot(const Spot& spot, std::int64_t size) {
    if (spot.home == Home::kSmall || spot.home == Home::kPool) log(EventKind::kGive, kNone, spot.offset, size);
    if (spot.home == Home::kSmall) {
      small_.free(spot.offset);
      stats_.resident_bytes -= std::max<std::int64_t>(size, 1);
    } else if (spot.home == Home::kPool) {
      stats_.resident_bytes -= pool_[spot.block].size;
      pool_.free(spot.block);
    }
  }

  // ------------------------------------------------------------------ one op
  // A cell that can't be recomputed, in bytes that are already there.
  CellId add_leaf(std::int64_t size, const Spot& spot) {
    const CellId id = tape_.add_cell(size);
    settle_at(id, spot);
    tape_.cell(id).last_access = clock_;
    return id;
  }

  // Make every input resident and lock it; prepare what the op is about to mutate.
  void begin(std::span<const CellId> inputs, std::span<const CellId> mutated, bool is_replayable) {
    gather(inputs);
    for (const CellId id : inputs) ++tape_.cell(id).waits;
    try {
      for (const CellId id : mutated) prepare_mutation(id, is_replayable);
    } catch (...) {
      for (const CellId id : inputs) --tape_.cell(id).waits;
      unlock(inputs);
      cancel_copies();
      throw;
    }
    for (const CellId id : inputs) --tape_.cell(id).waits;
  }

  // The op failed: give the locks back, as if it had not begun.
  void abort(std::span<const CellId> inputs) {
    cancel_copies();
    unlock(inputs);
  }

  // The op found no room, and has given back what it took: make a hole of `size` bytes by sliding blocks together, its
  // own inputs among them, so that it may be tried once more. False where that cannot be done.
  bool make_way(std::span<const CellId> inputs, std::int64_t size) {
    if (config_.compaction == Compaction::kNever || config_.is_ideal) return false;
    unwound_.assign(inputs.begin(), inputs.end());
    pool::BlockId room = pool::kNone;
    for (const bool may_take_backward : {false, true}) {
      if (room == pool::kNone) room = squeeze(size, config_.places[0], may_take_backward);
    }
    unwound_.clear();
    if (room != pool::kNone) pool_.free(room);
    return room != pool::kNone;
  }

  // The op is done. Returns its record (kNone: none is needed); `cells` gets one cell per output.
  RecordId end(const Call& call, std::span<const CellId> inputs, std::span<const Output> outputs,
               std::vector<CellId>& cells) {
    clock_ += call.cost;
    stats_.base_cost += call.cost;
    ++stats_.num_calls;
    bool has_recipe = call.is_replayable;
    std::int32_t depth = 0;
    for (const CellId input : inputs) {
      const RecordId above = tape_.cell(input).producer;
      if (above != kNone) depth = std::max(depth, tape_.record(above).depth + 1);
    }
    if (depth > config_.max_depth) has_recipe = false;
    for (const Output& output : outputs) {
      if (output.overwrites != kNone && is_leaf(output.overwrites)) has_recipe = false;
    }
    cells.clear();
    recorded_.clear();
    overwrites_.clear();
    bool is_worth_recording = false;
    for (const Output& output : outputs) {
      const CellId id = tape_.add_cell(output.size);
      cells.push_back(id);
      Cell& fresh = tape_.cell(id);
      fresh.backward = call.is_backward;
      fresh.last_access = clock_;
      if (output.overwrites != kNone) {
        take_over(output.overwrites, id);
      } else {
        settle_at(id, output.spot);
      }
      const bool is_recorded = has_recipe && !output.is_leaf && tape_.cell(id).spot.home == Home::kPool;
      is_worth_recording |= is_recorded;
      recorded_.push_back(is_recorded ? id : kNone);
      overwrites_.push_back(output.overwrites);
    }
    RecordId record = kNone;
    if (is_worth_recording) {
      record = tape_.add_record(call.cost, inputs, recorded_, overwrites_);
      Record& kept = tape_.record(record);
      kept.backward = call.is_backward;
      kept.temper = static_cast<std::uint8_t>(call.temper);
      for (std::size_t index = 0; index < outputs.size(); ++index) kept.sizes[index] = outputs[index].size;
    }
    log(EventKind::kCall, record, 0, 0);
    for (const Output& output : outputs) {
      if (output.overwrites != kNone) settle(output.overwrites);
    }
    unlock(inputs);
    return record;
  }

  // The program's last reference to a cell is gone.
  void release(CellId id) {
    if (!tape_.cell(id).is_resident()) count_absent(id, -1);
    tape_.cell(id).alive = false;
    settle(id);
  }

  // The address of a cell escapes: make it resident, never evict or move it again.
  void pin(CellId id) {
    gather(std::span<const CellId>(&id, 1));
    pin_block(id);
    unlock(std::span<const CellId>(&id, 1));
  }

  // Undo one pin.
  void unpin(CellId id) {
    Cell& subject = tape_.cell(id);
    if (subject.pins == 0) throw std::logic_error("cell " + std::to_string(id) + " is not pinned");
    if (subject.spot.home == Home::kPool) pool_.unpin(subject.spot.block);
    --subject.pins;
    if (!subject.alive) settle(id);
  }

  // Make a cell resident now.
  void materialize(CellId id) {
    gather(std::span<const CellId>(&id, 1));
    unlock(std::span<const CellId>(&id, 1));
  }

  // The host has copied a cell's bytes out of the arena, where they stay.
  void move_out(CellId id) {
    const Spot spot = std::exchange(tape_.cell(id).spot, Spot{Home::kExternal, pool::kNone, -1});
    free_spot(spot, tape_.cell(id).size);
  }

  // Copy-on-write in progress: cells that an op is about to mutate, and the copies that it must mutate instead.
  std::span<const std::pair<CellId, Spot>> copies() const { return copies_; }

  bool is_leaf(CellId id) const { return tape_.cell(id).producer == kNone; }

  bool may_evict(CellId id) const { return may_evict(tape_.cell(id)); }
  bool may_evict(const Cell& subject) const {
    return subject.spot.home == Home::kPool && subject.producer != kNone && subject.locks == 0 && subject.pins == 0 &&
           !(is_holding_ && subject.awaited > 0);
  }

  double staleness(CellId id) const { return staleness(tape_.cell(id)); }
  double staleness(const Cell& subject) const {
    if (is_circling_ && subject.awaited > 0) return config_.staleness_epsilon;
    return std::max(clock_ - subject.last_access, 0.0) + config_.staleness_epsilon;
  }

  double projected_cost(CellId id) { return tape_.projected_cost(id); }
  double component_cost(CellId id) { return components_.cost(tape_, id); }

  // A random number from 0 to 1 for a cell, another one after every eviction (splitmix64 of seed, cell, evictions).
  double chance(CellId id) const {
    std::uint64_t mixed = config_.seed;
    for (const auto part : {static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(stats_.num_evictions)}) {
      mixed += part + 0x9E3779B97F4A7C15ULL;
      mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
      mixed ^= mixed >> 31;
    }
    return static_cast<double>(mixed >> 11) / 9007199254740992.0;
  }

  // For hosts that number their calls and cells: what they say is logged among the rest.
  void note(EventKind kind, std::int32_t id, std::int64_t name) { log(kind, id, name, 0); }

  void evict(CellId id) {
    Cell& subject = tape_.cell(id);
    ++stats_.num_evictions;
    stats_.bytes_evicted += pool_[subject.spot.block].size;
    log(EventKind::kEvict, id, subject.spot.offset, pool_[subject.spot.block].size);
    drop(id);
  }

  static constexpr pool::Owner kRaw = std::int64_t{1} << 40;
  static constexpr std::int64_t kSurplusShare = 64;  // larger requests than such a share of the arena leave no surplus
  static constexpr std::int32_t kMaxRetries = 6;  // of an op that found no room
  static constexpr std::int32_t kMaxRounds = 3;   // of a record within one recomputation that does not go in circles
  static constexpr std::int64_t kEndless = std::int64_t{1} << 50;

 private:
  EngineConfig config_;
  Host& host_;
  pool::Pool pool_;
  pool::SmallRegion small_;
  Tape tape_;
  Components components_;
  EngineStats stats_;
  double clock_ = 0.0;
  Chooser chooser_;
  std::vector<Event>* log_ = nullptr;
  std::vector<std::pair<CellId, Spot>> copies_;  // copy-on-write in progress: the new bytes of a cell
  std::vector<CellId> recorded_, overwrites_;    // of the call that ends
  std::vector<RecordId> awaited_;                // records about to be recomputed
  std::vector<Row> rows_;                        // the arena as the last search found it
  std::vector<CellId> victims_;                  // what the last search chose
  Squeezer squeezer_;
  std::int32_t num_sessions_ = 0;                // open ones, one within the other
  std::uint32_t session_ = 0;                    // number of the outermost
  bool is_circling_ = false;                     // it has executed some record more than kMaxRounds times
  bool is_holding_ = false;                      // so what it awaits must not go
  std::vector<CellId> unwound_;                  // inputs of an op that will be tried again: they may move
  std::vector<CellId> zombies_;                  // leaves that the program dropped and living records read

  static EngineConfig resolved(EngineConfig config) {
    if (config.small_bytes == kAutomatic) config.small_bytes = automatic_small_bytes(config.capacity);
    if (config.slab_bytes == kAutomatic) {
      config.slab_bytes = automatic_slab_bytes(config.capacity, config.alignment, config.small_bytes);
    }
    return config;
  }

  static pool::SmallOptions small_options(const EngineConfig& config) {
    pool::SmallOptions options;
    options.small_bytes = config.small_bytes;
    options.slab_bytes = config.slab_bytes;
    return options;
  }

  void log(EventKind kind, std::int32_t id, std::int64_t offset, std::int64_t size) {
    if (log_ != nullptr) log_->push_back(Event{kind, id, offset, size});
  }

  void grow(std::int64_t size) {
    stats_.resident_bytes += size;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.resident_bytes);
    stats_.peak_demand_bytes = std::max(stats_.peak_demand_bytes, stats_.resident_bytes + stats_.evicted_alive_bytes);
  }

  void pin_block(CellId id) {
    Cell& subject = tape_.cell(id);
    if (subject.spot.home == Home::kPool) pool_.pin(subject.spot.block);
    ++subject.pins;
  }

  void settle_at(CellId id, const Spot& spot) {
    Cell& subject = tape_.cell(id);
    subject.spot = spot;
    if (spot.home == Home::kPool) pool_.set_owner(spot.block, id);
    log(EventKind::kOwn, id, spot.offset, subject.size);
  }

  // ------------------------------------------------------------------ gather and recompute
  // While something is recomputed, values that nobody but the records still to come reads are kept for them, and
  // dropped after the last: without that, a chain of residual blocks would be recomputed twice per block.
  class Session {
   public:
    explicit Session(Engine& engine) : engine_(engine) {
      if (++engine_.num_sessions_ == 1) ++engine_.session_;
    }
    ~Session() {
      if (--engine_.num_sessions_ > 0) return;
      for (const RecordId id : engine_.awaited_) {
        if (!engine_.tape_.record(id).exists || !engine_.tape_.record(id).is_awaited) continue;
        const std::vector<CellId> inputs = engine_.tape_.record(id).inputs;
        engine_.tape_.stop_awaiting(id);
        for (const CellId input : inputs) engine_.settle(input);
      }
      engine_.awaited_.clear();
      engine_.is_circling_ = false;
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    Engine& engine_;
  };

  void gather(std::span<const CellId> inputs) {
    const bool is_complete =
        std::all_of(inputs.begin(), inputs.end(), [this](CellId id) { return tape_.cell(id).is_resident(); });
    if (is_complete) {
      for (const CellId id : inputs) {
        tape_.cell(id).last_access = clock_;
        ++tape_.cell(id).locks;
      }
      return;
    }
    const Session session(*this);
    for (const CellId id : inputs) {
      if (!tape_.cell(id).is_resident()) tape_.await(id, awaited_);
    }
    gather_absent(inputs);
  }

  void gather_absent(std::span<const CellId> inputs) {
    std::vector<bool> is_locked(inputs.size(), false);
    std::size_t tries = 0;
    try {
      while (true) {
        CellId missing = kNone;
        for (const CellId id : inputs) {
          if (!tape_.cell(id).is_resident()) {
            missing = id;
            break;
          }
        }
        if (missing == kNone) break;
        // What is there already is fresh; if it is pushed out all the same, hold on to it.
        const bool holds_on = ++tries > inputs.size();
        for (std::size_t index = 0; index < inputs.size(); ++index) {
          Cell& input = tape_.cell(inputs[index]);
          if (!input.is_resident()) continue;
          input.last_access = clock_;
          if (holds_on && !is_locked[index]) {
            is_locked[index] = true;
            wait_for(inputs[index]);
          }
        }
        if (tries > 3 * inputs.size() + 3) throw Thrashing("the inputs of one op push each other out");
        recompute(missing);
      }
    } catch (...) {
      for (std::size_t index = 0; index < inputs.size(); ++index) {
        if (is_locked[index]) stop_waiting(inputs[index]);
      }
      throw;
    }
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      Cell& input = tape_.cell(inputs[index]);
      input.last_access = clock_;
      ++input.locks;
      if (is_locked[index]) stop_waiting(inputs[index]);
    }
  }

  // An op that has not begun keeps a value: it must not be evicted, but may still be moved.
  void wait_for(CellId id) {
    ++tape_.cell(id).locks;
    ++tape_.cell(id).waits;
  }

  void stop_waiting(CellId id) {
    --tape_.cell(id).waits;
    unlock(std::span<const CellId>(&id, 1));
  }

  struct Frame {
    RecordId record;
    std::size_t tries = 0;
    std::vector<CellId> waiting;  // inputs that are kept while others are recomputed
    std::vector<CellId> running;  // inputs that are in use
  };

  void recompute(CellId target) {
    std::vector<Frame> frames;
    tape_.await(target, awaited_);
    frames.push_back(frame_of(target));
    try {
      while (!frames.empty()) {
        Frame& frame = frames.back();
        const Record& record = tape_.record(frame.record);
        CellId missing = kNone;
        for (const CellId id : record.inputs) {
          if (!tape_.cell(id).is_resident()) {
            missing = id;
            break;
          }
        }
        if (missing != kNone) {
          if (++frame.tries > record.inputs.size()) {
            for (const CellId id : record.inputs) {
              if (!tape_.cell(id).is_resident() || contains(frame.waiting, id)) continue;
              wait_for(id);
              frame.waiting.push_back(id);
            }
          }
          if (frame.tries > 3 * record.inputs.size() + 3) throw Thrashing("ancestors push each other out");
          for (const CellId id : record.inputs) tape_.cell(id).last_access = clock_;
          tape_.await(missing, awaited_);
          frames.push_back(frame_of(missing));
          continue;
        }
        for (const CellId id : record.inputs) ++tape_.cell(id).locks;
        for (const CellId id : frame.waiting) stop_waiting(id);
        frame.waiting.clear();
        frame.running.assign(record.inputs.begin(), record.inputs.end());
        execute_again(frame.record, target);
        const std::vector<CellId> locked = std::move(frame.running);
        frames.pop_back();
        unlock(locked);
      }
    } catch (...) {
      while (!frames.empty()) {
        const Frame frame = std::move(frames.back());
        frames.pop_back();
        for (const CellId id : frame.waiting) stop_waiting(id);
        unlock(frame.running);
      }
      throw;
    }
  }

  Frame frame_of(CellId id) const {
    const RecordId record = tape_.cell(id).producer;
    if (record == kNone) throw std::logic_error("an absent leaf: cell " + std::to_string(id));
    return Frame{record, 0, {}, {}};
  }

  static bool contains(const std::vector<CellId>& all, CellId id) {
    return std::find(all.begin(), all.end(), id) != all.end();
  }

  // Run a record whose inputs are resident and locked.
  void execute_again(RecordId id, CellId target) {
    std::vector<Spot> spots(tape_.record(id).outputs.size());
    const auto replay = [&] {
      try {
        prepare_overwrites(id, spots);
        host_.replay(id, spots);
      } catch (...) {
        for (std::size_t index = 0; index < spots.size(); ++index) {
          free_spot(spots[index], tape_.record(id).sizes[index]);
          spots[index] = Spot{};
        }
        throw;
      }
    };
    std::int64_t wanted = 0;
    for (std::int32_t tries = 0;; ++tries) {
      try {
        replay();
        break;
      } catch (const OutOfMemory&) {
        const std::vector<CellId>& taken = tape_.record(id).overwrites;
        const bool is_out_of_place = std::all_of(taken.begin(), taken.end(), [](CellId old) { return old == kNone; });
        const std::vector<std::int64_t>& sizes = tape_.record(id).sizes;
        const std::int64_t known = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
        wanted = std::max({host_.shortage(), known, wanted + wanted / 8});  // there may be more scratch to come
        if (tries == kMaxRetries || !is_out_of_place || !make_way(tape_.record(id).inputs, wanted)) throw;
      }
    }
    const Record& record = tape_.record(id);
    clock_ += record.cost;
    stats_.recompute_cost += record.cost;
    ++stats_.num_recomputes;
    count_round(id);
    log(EventKind::kRecompute, id, 0, 0);
    tape_.stop_awaiting(id);
    const std::vector<CellId> outputs = record.outputs;
    const std::vector<std::int64_t> sizes = record.sizes;
    for (std::size_t index = 0; index < outputs.size(); ++index) {
      const CellId output = outputs[index];
      if (output == kNone || tape_.cell(output).is_resident() || !is_wanted(output, target)) {
        free_spot(spots[index], sizes[index]);
        continue;
      }
      Cell& refilled = tape_.cell(output);
      count_absent(output, -1);
      settle_at(output, spots[index]);
      refilled.last_access = clock_;
      tape_.forget_costs(output);
      if (config_.score == Score::kDtrEq) components_.remove(tape_, output);
      host_.refilled(output);
    }
    log(EventKind::kRecomputed, id, 0, 0);
    if (clock_ > config_.max_cost) {
      throw Thrashing("recomputation has taken more time than allowed: the budget is too small");
    }
  }

  // A recomputation whose values push each other out executes the same records again and again.
  void count_round(RecordId id) {
    Record& executed = tape_.record(id);
    if (std::exchange(executed.session, session_) != session_) executed.rounds = 0;
    if (++executed.rounds > kMaxRounds && config_.holds_awaited) is_circling_ = true;
  }

  bool is_wanted(CellId id, CellId target) const {
    const Cell& subject = tape_.cell(id);
    return subject.alive || id == target || subject.awaited > 0 || config_.keeps_dead;
  }

  // An op in place runs on its input's bytes: hand them over, or a copy where someone else holds the old version.
  void prepare_overwrites(RecordId id, std::vector<Spot>& spots) {
    const std::size_t num_outputs = tape_.record(id).outputs.size();
    for (std::size_t index = 0; index < num_outputs; ++index) {
      const CellId old = tape_.record(id).overwrites[index];
      if (old == kNone) continue;
      Cell& ghost = tape_.cell(old);
      const bool is_shared = ghost.locks > 1 || ghost.pins > 0 || ghost.alive || ghost.producer == kNone ||
                             config_.is_copy_on_write || ghost.spot.home != Home::kPool;
      if (is_shared) {
        const Spot fresh = allocate(tape_.record(id).sizes[index], static_cast<Temper>(tape_.record(id).temper));
        host_.copy(tape_.cell(old).spot, fresh, tape_.cell(old).size);
        spots[index] = fresh;
      } else {
        spots[index] = ghost.spot;
        pool_.set_owner(ghost.spot.block, kRaw);
        ghost.spot = Spot{};
        tape_.forget_costs(old);
      }
    }
  }

  // ------------------------------------------------------------------ in place
  void prepare_mutation(CellId id, bool is_replayable) {
    if (is_leaf(id) || !is_replayable) {
      part_from_readers(id);
    } else if (config_.is_copy_on_write && tape_.cell(id).pins == 0) {
      const Spot fresh = allocate(tape_.cell(id).size, Temper::kCheap);
      host_.copy(tape_.cell(id).spot, fresh, tape_.cell(id).size);
      copies_.emplace_back(id, fresh);
    }
  }

  // A version is about to be lost for good: whatever the program holds and would need it for becomes a leaf itself.
  void part_from_readers(CellId id) {
    if (tape_.cell(id).consumers.empty()) return;
    if (tape_.cell(id).spot.home == Home::kSmall && is_leaf(id)) {
      log(EventKind::kTakeOut, id, 0, 0);
      host_.take_out(id);
      return;
    }
    const Session session(*this);
    std::vector<CellId> kept;  // they must stay, but may move: the op has not begun
    const std::vector<CellId> frontier = tape_.live_frontier(id);
    for (const CellId held : frontier) {
      if (!tape_.cell(held).is_resident()) tape_.await(held, awaited_);
    }
    try {
      for (const CellId held : frontier) {
        gather(std::span<const CellId>(&held, 1));
        ++tape_.cell(held).waits;
        kept.push_back(held);
      }
    } catch (...) {
      give_up(kept);
      throw;
    }
    for (const CellId held : kept) freeze(held);
    give_up(kept);
  }

  // What was kept for an op need not be any more.
  void give_up(const std::vector<CellId>& kept) {
    for (const CellId id : kept) --tape_.cell(id).waits;
    unlock(kept);
  }

  void freeze(CellId id) {
    if (is_leaf(id)) return;
    ++stats_.num_frozen;
    tape_.make_leaf(id);
  }

  // `old` is superseded by `fresh`, which gets its bytes (or the copy made for it).
  void take_over(CellId old, CellId fresh) {
    Cell& before = tape_.cell(old);
    before.alive = false;
    for (std::size_t index = 0; index < copies_.size(); ++index) {
      if (copies_[index].first != old) continue;
      settle_at(fresh, copies_[index].second);
      for (; before.pins > 0; --before.pins) {  // whoever asked for the address got the copy's
        if (before.spot.home == Home::kPool) pool_.unpin(before.spot.block);
        pin_block(fresh);
      }
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
      return;
    }
    const Spot spot = before.spot;
    tape_.cell(fresh).pins = before.pins;
    tape_.cell(fresh).kept_bytes = before.kept_bytes;
    const bool is_copied_out = spot.home == Home::kSmall && is_leaf(old) && !before.consumers.empty();
    before.pins = 0;
    before.spot = is_copied_out ? Spot{Home::kExternal, pool::kNone, -1} : Spot{};
    settle_at(fresh, spot);
    tape_.forget_costs(old);
  }

  void cancel_copies() {
    for (const auto& [id, spot] : copies_) free_spot(spot, tape_.cell(id).size);
    copies_.clear();
  }

  // ------------------------------------------------------------------ release
  void unlock(std::span<const CellId> ids) {
    for (const CellId id : ids) --tape_.cell(id).locks;
    for (const CellId id : ids) {
      if (tape_.cell(id).exists && !tape_.cell(id).alive) settle(id);
    }
  }

  // A cell that the program no longer holds: destroy, keep or drop it.
  void settle(CellId id) {
    const Cell& subject = tape_.cell(id);
    if (!subject.exists || subject.alive || subject.locks > 0 || subject.pins > 0) return;
    if (tape_.is_unneeded(id)) {
      tape_.collect(id);
    } else if (subject.producer == kNone) {
      if (subject.spot.home == Home::kPool || subject.spot.home == Home::kSmall) part_with_leaf(id);
    } else {
      if (subject.kept_bytes > 0) charge(tape_.live_frontier(id), std::exchange(tape_.cell(id).kept_bytes, 0));
      const bool is_droppable = tape_.cell(id).exists && subject.awaited == 0 && subject.spot.home == Home::kPool;
      if (is_droppable && !config_.keeps_dead) drop(id);
    }
  }

  // A dropped leaf stays for its readers' recipes. They become leaves instead where that costs no more bytes; many small
  // ones count together: so does a reader that has no more bytes than its recipe keeps.
  void part_with_leaf(CellId id) {
    const bool is_known = tape_.cell(id).zombie_index != kNone;
    const std::int64_t size = tape_.cell(id).size;
    if (is_known && tape_.cell(id).spot.home == Home::kSmall) return;
    const std::vector<CellId> frontier = tape_.live_frontier(id);
    std::int64_t bytes = 0;
    for (const CellId reader : frontier) bytes += tape_.cell(reader).size;
    const bool is_cheap = bytes <= size && may_freeze(frontier);
    if (is_cheap) {
      for (const CellId reader : frontier) freeze(reader);
    } else if (!is_known) {
      charge(frontier, size);
    }
    if (!is_known && tape_.cell(id).exists) add_zombie(id);
  }

  // Share `bytes` that dropped leaves have among those for whose recipes they are kept.
  void charge(const std::vector<CellId>& frontier, std::int64_t bytes) {
    for (const CellId reader : frontier) {
      Cell& held = tape_.cell(reader);
      held.kept_bytes += bytes / static_cast<std::int64_t>(frontier.size());
      if (held.kept_bytes >= held.size && may_freeze(std::span(&reader, 1))) freeze(reader);
    }
  }

  // What an op uses must stay what it is: it may be mutating it, as something that can come back.
  bool may_freeze(std::span<const CellId> cells) const {
    return std::all_of(cells.begin(), cells.end(), [this](CellId id) {
      return tape_.cell(id).is_resident() && tape_.cell(id).locks == 0;
    });
  }

  void add_zombie(CellId id) {
    tape_.cell(id).zombie_index = static_cast<std::int32_t>(zombies_.size());
    zombies_.push_back(id);
  }

  void remove_zombie(CellId id) {
    const std::int32_t index = std::exchange(tape_.cell(id).zombie_index, kNone);
    if (index == kNone) return;
    const CellId last = zombies_.back();
    zombies_.pop_back();
    if (last == id) return;
    zombies_[static_cast<std::size_t>(index)] = last;
    tape_.cell(last).zombie_index = index;
  }

  // Before giving up: cut every dropped leaf from its readers, where these are resident. Whether one has gone by that.
  bool freeze_zombies() {
    bool has_freed = false;
    for (const CellId id : std::vector<CellId>(zombies_)) {
      if (!tape_.cell(id).exists || tape_.cell(id).zombie_index == kNone) continue;
      const std::vector<CellId> frontier = tape_.live_frontier(id);
      if (!may_freeze(frontier)) continue;
      for (const CellId reader : frontier) freeze(reader);
      has_freed |= !tape_.cell(id).exists;
    }
    return has_freed;
  }

  // The tape destroys a cell: give its bytes back.
  void forget(CellId id) {
    const Cell& subject = tape_.cell(id);
    remove_zombie(id);
    const Spot spot = subject.spot;
    tape_.cell(id).spot = Spot{};
    components_.forget(id);
    host_.cell_gone(id);
    free_spot(spot, subject.size);
    log(EventKind::kGone, id, 0, 0);
  }

  // A value comes or goes; what the program does not hold does not count.
  void count_absent(CellId id, std::int64_t sign) {
    if (tape_.cell(id).alive) stats_.evicted_alive_bytes += sign * tape_.cell(id).size;
  }

  void drop(CellId id) {
    count_absent(id, 1);
    host_.evicted(id);
    const Spot spot = tape_.cell(id).spot;
    tape_.cell(id).spot = Spot{};
    free_spot(spot, tape_.cell(id).size);
    tape_.forget_costs(id);
    if (config_.score == Score::kDtrEq) components_.add(tape_, id);
  }

  // ------------------------------------------------------------------ room
  // Write down all blocks, in address order.
  void survey(bool may_take_backward) {
    switch (config_.score) {
      case Score::kCoop: return survey_by<Score::kCoop>(may_take_backward);
      case Score::kDtr: return survey_by<Score::kDtr>(may_take_backward);
      case Score::kDte: return survey_by<Score::kDte>(may_take_backward);
      case Score::kLru: return survey_by<Score::kLru>(may_take_backward);
      case Score::kSize: return survey_by<Score::kSize>(may_take_backward);
      case Score::kRandom: return survey_by<Score::kRandom>(may_take_backward);
      case Score::kDtrNeighborhood: return survey_by<Score::kDtrNeighborhood>(may_take_backward);
      case Score::kDtrEq: return survey_by<Score::kDtrEq>(may_take_backward);
      case Score::kLocal: return survey_by<Score::kLocal>(may_take_backward);
      case Score::kMsps: return survey_by<Score::kMsps>(may_take_backward);
    }
  }

  template <Score kScore>
  void survey_by(bool may_take_backward) {
    rows_.resize(static_cast<std::size_t>(pool_.num_blocks()));
    Row* row = rows_.data();
    for (pool::BlockId id = pool_.first(); id != pool::kNone; ++row) {
      const pool::Block& block = pool_[id];
      *row = Row{block.size, 0.0, kNone, Standing::kHole};
      id = block.next;
      if (block.owner == pool::kFree) continue;
      row->worth = kForbidden;
      row->standing = Standing::kFixed;
      if (block.owner >= kRaw || block.owner < 0) continue;
      row->cell = static_cast<CellId>(block.owner);
      const Cell& subject = tape_.cell(row->cell);
      if (block.pins == 0 && may_evict(subject) && (may_take_backward || !subject.backward)) {
        row->worth = worth<kScore>(row->cell, subject, block);
        row->standing = Standing::kOffered;
      } else if (may_move(block)) {
        row->standing = Standing::kMovable;
      }
    }
  }

  template <Score kScore>
  double worth(CellId id, const Cell& subject, const pool::Block& block) {
    const auto size = static_cast<double>(block.size);
    switch (kScore) {
      case Score::kCoop:
        // Gradients are stale because they wait for the optimizer, not because nobody wants them.
        if (subject.backward && config_.is_two_tiered) return tape_.projected_cost(id);
        return tape_.projected_cost(id) / staleness(subject);
      case Score::kDtr: return tape_.projected_cost(id) / (staleness(subject) * size);
      case Score::kDte:
        return tape_.projected_cost(id) /
               (staleness(subject) * (size + static_cast<double>(free_beside(pool_, block))));
      case Score::kLru: return 1.0 / staleness(subject);
      case Score::kSize: return 1.0 / size;
      case Score::kRandom: return chance(id);
      case Score::kDtrNeighborhood: return tape_.neighborhood_cost(id) / (staleness(subject) * size);
      case Score::kDtrEq: return components_.cost(tape_, id) / (staleness(subject) * size);
      case Score::kLocal: return tape_.record(subject.producer).cost / (staleness(subject) * size);
      case Score::kMsps: return tape_.projected_cost(id) / size;
    }
    return kForbidden;
  }

  // Where addresses do not matter: evict one by one until the bytes suffice.
  void make_bytes(std::int64_t size) {
    if (stats_.resident_bytes + size <= config_.capacity) return;
    const double started = host_.seconds();
    ++stats_.num_searches;
    for (const bool may_take_backward : {false, true}) {
      if (!may_take_backward && !config_.is_two_tiered) continue;
      while (stats_.resident_bytes + size > config_.capacity) {
        choose(size, may_take_backward);
        if (victims_.empty()) break;
        for (const CellId id : victims_) evict(id);
      }
    }
    stats_.search_seconds += host_.seconds() - started;
    if (stats_.resident_bytes + size > config_.capacity) fail(size);
    stats_.fragmentation_sum += static_cast<double>(config_.capacity - stats_.resident_bytes - size) /
                                static_cast<double>(config_.capacity);
  }

  bool make_slab_room() {
    try {
      const pool::BlockId room = make_room(config_.slab_bytes, config_.places[2]);
      pool_.free(room);
      return true;
    } catch (const OutOfMemory&) {
      return false;  // the caller asks the pool itself, for less
    }
  }

  pool::BlockId make_room(std::int64_t size, pool::Place place) {
    const double started = host_.seconds();
    const double slid = stats_.slide_seconds;
    ++stats_.num_searches;
    pool::BlockId block = is_circling_ ? clear_without_awaited(size, place) : pool::kNone;
    if (block == pool::kNone) block = clear_tiers(size, place);
    stats_.search_seconds += host_.seconds() - started - (stats_.slide_seconds - slid);
    if (block == pool::kNone && freeze_zombies()) block = clear_tier(size, place, true);
    if (block == pool::kNone) fail(size);
    stats_.fragmentation_sum += static_cast<double>(pool_.free_bytes()) / static_cast<double>(pool_.capacity());
    return block;
  }

  // What a recomputation in progress still reads goes last, even after values made in backward.
  pool::BlockId clear_without_awaited(std::int64_t size, pool::Place place) {
    is_holding_ = true;
    try {
      const pool::BlockId block = clear_tiers(size, place);
      is_holding_ = false;
      return block;
    } catch (...) {
      is_holding_ = false;
      throw;
    }
  }

  pool::BlockId clear_tiers(std::int64_t size, pool::Place place) {
    for (const bool may_take_backward : {false, true}) {
      if (!may_take_backward && !config_.is_two_tiered) continue;
      pool::BlockId block = clear_tier(size, place, may_take_backward);
      if (block == pool::kNone && config_.compaction != Compaction::kNever) {
        block = squeeze(size, place, may_take_backward);
      }
      if (block != pool::kNone) return block;
    }
    return pool::kNone;
  }

  // No window is large enough: of the runs whose blocks may all move, take the one where evicting what is cheapest per
  // byte costs least, and slide together what stays.
  pool::BlockId squeeze(std::int64_t size, pool::Place place, bool may_take_backward) {
    survey(may_take_backward);
    return carry_out(squeezer_.plan(rows_, size), size, place);
  }

  pool::BlockId carry_out(const Squeeze& plan, std::int64_t size, pool::Place place) {
    if (!plan.is_found()) return pool::kNone;
    for (const std::size_t victim : plan.victims) evict(rows_[victim].cell);
    return compact(size) ? pool_.allocate(size, kRaw, place) : pool::kNone;
  }

  pool::BlockId clear_tier(std::int64_t size, pool::Place place, bool may_take_backward) {
    while (true) {
      const pool::BlockId block = pool_.allocate(size, kRaw, place);
      if (block != pool::kNone) return block;
      choose(size, may_take_backward);
      if (victims_.empty()) return pool::kNone;
      if (config_.compaction == Compaction::kWhenCheaper) {
        const Squeeze& plan = squeezer_.plan(rows_, size);
        if (plan.is_found() && is_cheaper(plan, size)) return carry_out(plan, size, place);
      }
      for (const CellId id : victims_) evict(id);
    }
  }

  // Survey the arena, and put into `victims_` what the policy would evict: a single value where it goes one by one.
  void choose(std::int64_t size, bool may_take_backward) {
    victims_.clear();
    if (chooser_) victims_ = ask_chooser(size, may_take_backward);
    survey(may_take_backward);
    if (chooser_) return;
    if (config_.method == Method::kOneByOne || config_.is_ideal) {
      const std::size_t victim = find_cheapest(rows_);
      if (victim != kNoRow) victims_.push_back(rows_[victim].cell);
      return;
    }
    const Window window = find_window(rows_, size, surplus_for(size));
    if (window.first == kNoRow) return;
    for (std::size_t index = window.first; index <= window.last; ++index) {
      if (rows_[index].standing == Standing::kOffered) victims_.push_back(rows_[index].cell);
    }
  }

  std::vector<CellId> ask_chooser(std::int64_t size, bool may_take_backward) {
    std::vector<CellId> victims = chooser_(size, may_take_backward);
    for (const CellId id : victims) {
      if (id < 0 || static_cast<std::size_t>(id) >= tape_.cells_capacity() || !may_evict(id)) {
        throw std::invalid_argument("cell " + std::to_string(id) + " was chosen, but must not be evicted");
      }
    }
    return victims;
  }

  double surplus_for(std::int64_t size) const {
    return size > config_.capacity / kSurplusShare ? 1.0 : config_.surplus;
  }

  // Whether a squeeze costs less than evicting `victims_`, in the clock's unit: what has to be recomputed if all of it
  // is wanted again, and what is moved. Victims that make room for more than the request count for it in part.
  bool is_cheaper(const Squeeze& plan, std::int64_t size) {
    double limit = 0.0, cost = 0.0;
    std::int64_t bytes = 0;
    for (const CellId id : victims_) {
      limit += tape_.projected_cost(id);
      bytes += pool_[tape_.cell(id).spot.block].size;
    }
    limit /= credit_of(bytes, size, surplus_for(size));
    for (const std::size_t victim : plan.victims) cost += tape_.projected_cost(rows_[victim].cell);
    if (!(cost < limit)) return false;
    for (const std::size_t victim : plan.victims) rows_[victim].standing = Standing::kHole;
    const auto moved = static_cast<double>(find_slide(rows_, size).owned);
    return cost + config_.copy_cost_per_byte * moved < limit;
  }

  // ------------------------------------------------------------------ compaction
  bool may_move(const pool::Block& block) const {
    if (block.pins > 0 || block.owner >= kRaw || block.owner < 0) return false;
    const Cell& subject = tape_.cell(static_cast<CellId>(block.owner));
    if (subject.pins > 0) return false;
    const std::int32_t uses = subject.locks - subject.waits;
    return uses == 0 || (uses == 1 && contains(unwound_, static_cast<CellId>(block.owner)));
  }

  // Slide blocks together until a hole holds `size`.
  bool compact(std::int64_t size) {
    survey(true);
    const Slide best = find_slide(rows_, size);
    if (best.first == kNoRow) return false;
    ++stats_.num_compactions;
    const double started = host_.seconds();
    for (std::size_t index = best.first; index <= best.last; ++index) {
      if (rows_[index].standing != Standing::kHole) slide(rows_[index].cell);
    }
    stats_.slide_seconds += host_.seconds() - started;
    return pool_.largest_hole() >= size;
  }

  void slide(CellId id) {
    Spot& spot = tape_.cell(id).spot;
    const std::int64_t from = spot.offset;
    spot.block = pool_.slide(spot.block, pool::End::kLow);
    spot.offset = pool_[spot.block].offset;
    if (spot.offset == from) return;
    stats_.bytes_moved += tape_.cell(id).size;
    const double cost = config_.copy_cost_per_byte * static_cast<double>(tape_.cell(id).size);
    clock_ += cost;
    stats_.move_cost += cost;
    log(EventKind::kMove, id, spot.offset, tape_.cell(id).size);
    host_.moved(id, from, spot.offset, tape_.cell(id).size);
  }

  [[noreturn]] void fail(std::int64_t size) const {
    std::int64_t locked = 0, unevictable = 0;
    for (pool::BlockId id = pool_.first(); id != pool::kNone; id = pool_[id].next) {
      const pool::Block& block = pool_[id];
      if (block.owner == pool::kFree) continue;
      if (block.owner >= 0 && block.owner < kRaw && tape_.cell(static_cast<CellId>(block.owner)).locks > 0) {
        locked += block.size;
      } else if (block.owner < 0 || block.owner >= kRaw || !may_evict(static_cast<CellId>(block.owner))) {
        unevictable += block.size;
      }
    }
    const std::int64_t free = config_.is_ideal ? config_.capacity - stats_.resident_bytes : pool_.free_bytes();
    throw OutOfMemory(size, config_.capacity, stats_.resident_bytes, locked, unevictable, free,
                      config_.is_ideal ? free : pool_.largest_hole());
  }
};

}  // namespace lowtide::online
