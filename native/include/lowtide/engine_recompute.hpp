// Bringing absent cells back: their records are executed again, ancestors first, without recursion.
//
//   gather(c) ──▶ frame of c's record ──▶ is an input absent? its record's frame comes first
//                        └──── all there: lock them, replay, keep what somebody wants of the outputs
//
// Records and dead-but-needed values as in DTR (ICLR 2021). Departure: values that other records about to be recomputed
// read are kept for them, and recomputations that go in circles hold on to these (docs/decisions/online-engine.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine_allocate.hpp"
#include "lowtide/engine_errors.hpp"
#include "lowtide/engine_events.hpp"
#include "lowtide/engine_release.hpp"
#include "lowtide/engine_state.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Executes records again; knows which are about to be.
class Recomputer {
 public:
  static constexpr std::int32_t kMaxRetries = 6;  // of an op that found no room

  Recomputer(EngineState& state, Allocator& allocator, Releaser& releaser)
      : state_(state), allocator_(allocator), releaser_(releaser) {}

  // While something is recomputed, values that nobody but the records still to come reads are kept for them, and
  // dropped after the last: without that, a chain of residual blocks would be recomputed twice per block.
  class Session {
   public:
    explicit Session(Recomputer& recomputer) : recomputer_(recomputer) {
      if (++recomputer_.num_sessions_ == 1) ++recomputer_.session_;
    }
    ~Session() {
      if (--recomputer_.num_sessions_ == 0) recomputer_.stop_awaiting();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    Recomputer& recomputer_;
  };

  // Make every input resident, and lock it.
  void gather(std::span<const CellId> inputs) {
    const bool is_complete =
        std::all_of(inputs.begin(), inputs.end(), [this](CellId id) { return state_.tape.cell(id).is_resident(); });
    if (is_complete) {
      for (const CellId id : inputs) {
        state_.tape.cell(id).last_access = state_.clock;
        ++state_.tape.cell(id).locks;
      }
      return;
    }
    const Session session(*this);
    await(inputs);
    gather_absent(inputs);
  }

  // Make a cell resident now.
  void materialize(CellId id) {
    gather(std::span<const CellId>(&id, 1));
    releaser_.unlock(std::span<const CellId>(&id, 1));
  }

  // Within a session: what the absent ones among some cells are computed from is kept until they are there.
  void await(std::span<const CellId> cells) {
    for (const CellId id : cells) {
      if (!state_.tape.cell(id).is_resident()) state_.tape.await(id, awaited_);
    }
  }

 private:
  static constexpr std::int32_t kMaxRounds = 3;  // of a record within one recomputation that does not go in circles

  struct Frame {
    RecordId record;
    std::size_t tries = 0;
    std::vector<CellId> waiting;  // inputs that are kept while others are recomputed
    std::vector<CellId> running;  // inputs that are in use
  };

  EngineState& state_;
  Allocator& allocator_;
  Releaser& releaser_;
  std::vector<RecordId> awaited_;  // records about to be recomputed
  std::int32_t num_sessions_ = 0;  // open ones, one within the other
  std::uint32_t session_ = 0;      // number of the outermost

  // What has been awaited and did not come to it.
  void stop_awaiting() {
    for (const RecordId id : awaited_) {
      if (!state_.tape.record(id).exists || !state_.tape.record(id).is_awaited) continue;
      const std::vector<CellId> inputs = state_.tape.record(id).inputs;
      state_.tape.stop_awaiting(id);
      for (const CellId input : inputs) releaser_.settle(input);
    }
    awaited_.clear();
    state_.is_circling = false;
  }

  CellId first_absent(std::span<const CellId> cells) const {
    for (const CellId id : cells) {
      if (!state_.tape.cell(id).is_resident()) return id;
    }
    return kNone;
  }

  void gather_absent(std::span<const CellId> inputs) {
    std::vector<bool> is_locked(inputs.size(), false);
    std::size_t tries = 0;
    try {
      while (true) {
        const CellId missing = first_absent(inputs);
        if (missing == kNone) break;
        // What is there already is fresh; if it is pushed out all the same, hold on to it.
        const bool holds_on = ++tries > inputs.size();
        for (std::size_t index = 0; index < inputs.size(); ++index) {
          Cell& input = state_.tape.cell(inputs[index]);
          if (!input.is_resident()) continue;
          input.last_access = state_.clock;
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
      Cell& input = state_.tape.cell(inputs[index]);
      input.last_access = state_.clock;
      ++input.locks;
      if (is_locked[index]) stop_waiting(inputs[index]);
    }
  }

  // An op that has not begun keeps a value: it must not be evicted, but may still be moved.
  void wait_for(CellId id) {
    ++state_.tape.cell(id).locks;
    ++state_.tape.cell(id).waits;
  }

  void stop_waiting(CellId id) {
    --state_.tape.cell(id).waits;
    releaser_.unlock(std::span<const CellId>(&id, 1));
  }

  void recompute(CellId target) {
    std::vector<Frame> frames;
    state_.tape.await(target, awaited_);
    frames.push_back(frame_of(target));
    try {
      while (!frames.empty()) {
        Frame& frame = frames.back();
        const Record& record = state_.tape.record(frame.record);
        const CellId missing = first_absent(record.inputs);
        if (missing != kNone) {
          if (++frame.tries > record.inputs.size()) {
            for (const CellId id : record.inputs) {
              if (!state_.tape.cell(id).is_resident() || contains(frame.waiting, id)) continue;
              wait_for(id);
              frame.waiting.push_back(id);
            }
          }
          if (frame.tries > 3 * record.inputs.size() + 3) throw Thrashing("ancestors push each other out");
          for (const CellId id : record.inputs) state_.tape.cell(id).last_access = state_.clock;
          state_.tape.await(missing, awaited_);
          frames.push_back(frame_of(missing));
          continue;
        }
        for (const CellId id : record.inputs) ++state_.tape.cell(id).locks;
        for (const CellId id : frame.waiting) stop_waiting(id);
        frame.waiting.clear();
        frame.running.assign(record.inputs.begin(), record.inputs.end());
        execute_again(frame.record, target);
        const std::vector<CellId> locked = std::move(frame.running);
        frames.pop_back();
        releaser_.unlock(locked);
      }
    } catch (...) {
      while (!frames.empty()) {
        const Frame frame = std::move(frames.back());
        frames.pop_back();
        for (const CellId id : frame.waiting) stop_waiting(id);
        releaser_.unlock(frame.running);
      }
      throw;
    }
  }

  Frame frame_of(CellId id) const {
    const RecordId record = state_.tape.cell(id).producer;
    if (record == kNone) throw std::logic_error("an absent leaf: cell " + std::to_string(id));
    return Frame{record, 0, {}, {}};
  }

  // Run a record whose inputs are resident and locked.
  void execute_again(RecordId id, CellId target) {
    std::vector<Spot> spots(state_.tape.record(id).outputs.size());
    const auto replay = [&] {
      try {
        prepare_overwrites(id, spots);
        state_.host.replay(id, spots);
      } catch (...) {
        for (std::size_t index = 0; index < spots.size(); ++index) {
          state_.free_spot(spots[index], state_.tape.record(id).sizes[index]);
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
        const std::vector<CellId>& taken = state_.tape.record(id).overwrites;
        const bool is_out_of_place = std::all_of(taken.begin(), taken.end(), [](CellId old) { return old == kNone; });
        const std::vector<std::int64_t>& sizes = state_.tape.record(id).sizes;
        const std::int64_t known = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
        wanted = std::max({state_.host.shortage(), known, wanted + wanted / 8});  // there may be more scratch to come
        if (tries == kMaxRetries || !is_out_of_place) throw;
        if (!allocator_.make_way(state_.tape.record(id).inputs, wanted)) throw;
      }
    }
    const Record& record = state_.tape.record(id);
    state_.clock += record.cost;
    state_.stats.recompute_cost += record.cost;
    ++state_.stats.num_recomputes;
    count_round(id);
    state_.log(EventKind::kRecompute, id, 0, 0);
    state_.tape.stop_awaiting(id);
    const std::vector<CellId> outputs = record.outputs;
    const std::vector<std::int64_t> sizes = record.sizes;
    for (std::size_t index = 0; index < outputs.size(); ++index) {
      const CellId output = outputs[index];
      if (output == kNone || state_.tape.cell(output).is_resident() || !is_wanted(output, target)) {
        state_.free_spot(spots[index], sizes[index]);
        continue;
      }
      Cell& refilled = state_.tape.cell(output);
      state_.count_absent(output, -1);
      state_.settle_at(output, spots[index]);
      refilled.last_access = state_.clock;
      state_.tape.forget_costs(output);
      if (state_.config.score == Score::kDtrEq) state_.components.remove(state_.tape, output);
      state_.host.refilled(output);
    }
    state_.log(EventKind::kRecomputed, id, 0, 0);
    if (state_.clock > state_.config.max_cost) {
      throw Thrashing("recomputation has taken more time than allowed");
    }
  }

  // A recomputation whose values push each other out executes the same records again and again.
  void count_round(RecordId id) {
    Record& executed = state_.tape.record(id);
    if (std::exchange(executed.session, session_) != session_) executed.rounds = 0;
    if (++executed.rounds > kMaxRounds && state_.config.holds_awaited) state_.is_circling = true;
  }

  bool is_wanted(CellId id, CellId target) const {
    const Cell& subject = state_.tape.cell(id);
    return subject.alive || id == target || subject.awaited > 0 || state_.config.keeps_dead;
  }

  // An op in place runs on its input's bytes: hand them over, or a copy where someone else holds the old version.
  void prepare_overwrites(RecordId id, std::vector<Spot>& spots) {
    const std::size_t num_outputs = state_.tape.record(id).outputs.size();
    for (std::size_t index = 0; index < num_outputs; ++index) {
      const CellId old = state_.tape.record(id).overwrites[index];
      if (old == kNone) continue;
      Cell& ghost = state_.tape.cell(old);
      const bool is_shared = ghost.locks > 1 || ghost.pins > 0 || ghost.alive || ghost.producer == kNone ||
                             state_.config.is_copy_on_write || ghost.spot.home != Home::kPool;
      if (is_shared) {
        const Record& record = state_.tape.record(id);
        const Spot fresh = allocator_.allocate(record.sizes[index], static_cast<Temper>(record.temper));
        state_.host.copy(state_.tape.cell(old).spot, fresh, state_.tape.cell(old).size);
        spots[index] = fresh;
      } else {
        spots[index] = ghost.spot;
        state_.memory.set_owner(ghost.spot.block, kRaw);
        ghost.spot = Spot{};
        state_.tape.forget_costs(old);
      }
    }
  }
};

}  // namespace lowtide::online
