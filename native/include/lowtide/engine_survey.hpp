// The arena as a search sees it: all blocks in address order, with what is lost by evicting each (policy.hpp: Score).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lowtide/engine_state.hpp"
#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"
#include "lowtide/tape.hpp"

namespace lowtide::online {

// Whether a block may lie elsewhere: only the inputs of a running op have a fixed address. `unwound`: those of an op
// that will be tried again.
inline bool may_move(const EngineState& state, std::span<const CellId> unwound, const pool::Block& block) {
  if (block.pins > 0 || block.owner >= kRaw || block.owner < 0) return false;
  const Cell& subject = state.tape.cell(static_cast<CellId>(block.owner));
  if (subject.pins > 0) return false;
  const std::int32_t uses = subject.locks - subject.waits;
  return uses == 0 || (uses == 1 && contains(unwound, static_cast<CellId>(block.owner)));
}

// What is lost by evicting a cell.
template <Score kScore>
double worth(EngineState& state, CellId id, const Cell& subject, const pool::Block& block) {
  const auto size = static_cast<double>(block.size);
  switch (kScore) {
    case Score::kCoop:
      // Gradients are stale because they wait for the optimizer, not because nobody wants them.
      if (subject.backward && state.config.is_two_tiered) return state.tape.projected_cost(id);
      return state.tape.projected_cost(id) / state.staleness(subject);
    case Score::kDtr: return state.tape.projected_cost(id) / (state.staleness(subject) * size);
    case Score::kDte:
      return state.tape.projected_cost(id) /
             (state.staleness(subject) * (size + static_cast<double>(free_beside(state.memory, block))));
    case Score::kLru: return 1.0 / state.staleness(subject);
    case Score::kSize: return 1.0 / size;
    case Score::kRandom: return state.chance(id);
    case Score::kDtrNeighborhood: return state.tape.neighborhood_cost(id) / (state.staleness(subject) * size);
    case Score::kDtrEq: return state.components.cost(state.tape, id) / (state.staleness(subject) * size);
    case Score::kLocal: return state.tape.record(subject.producer).cost / (state.staleness(subject) * size);
    case Score::kMsps: return state.tape.projected_cost(id) / size;
  }
  return kForbidden;
}

template <Score kScore>
void survey_by(EngineState& state, std::span<const CellId> unwound, bool may_take_backward, std::vector<Row>& rows) {
  rows.resize(static_cast<std::size_t>(state.memory.num_blocks()));
  Row* row = rows.data();
  for (pool::BlockId id = state.memory.first(); id != pool::kNone; ++row) {
    const pool::Block& block = state.memory[id];
    *row = Row{block.size, 0.0, kNone, Standing::kHole};
    id = block.next;
    if (block.owner == pool::kFree) continue;
    row->worth = kForbidden;
    row->standing = Standing::kFixed;
    if (block.owner >= kRaw || block.owner < 0) continue;
    row->cell = static_cast<CellId>(block.owner);
    const Cell& subject = state.tape.cell(row->cell);
    if (block.pins == 0 && state.may_evict(subject) && (may_take_backward || !subject.backward)) {
      row->worth = worth<kScore>(state, row->cell, subject, block);
      row->standing = Standing::kOffered;
    } else if (may_move(state, unwound, block)) {
      row->standing = Standing::kMovable;
    }
  }
}

// Write down all blocks, in address order. Values made in backward are offered where `may_take_backward`.
inline void survey(EngineState& state, std::span<const CellId> unwound, bool may_take_backward,
                   std::vector<Row>& rows) {
  switch (state.config.score) {
    case Score::kCoop: return survey_by<Score::kCoop>(state, unwound, may_take_backward, rows);
    case Score::kDtr: return survey_by<Score::kDtr>(state, unwound, may_take_backward, rows);
    case Score::kDte: return survey_by<Score::kDte>(state, unwound, may_take_backward, rows);
    case Score::kLru: return survey_by<Score::kLru>(state, unwound, may_take_backward, rows);
    case Score::kSize: return survey_by<Score::kSize>(state, unwound, may_take_backward, rows);
    case Score::kRandom: return survey_by<Score::kRandom>(state, unwound, may_take_backward, rows);
    case Score::kDtrNeighborhood: return survey_by<Score::kDtrNeighborhood>(state, unwound, may_take_backward, rows);
    case Score::kDtrEq: return survey_by<Score::kDtrEq>(state, unwound, may_take_backward, rows);
    case Score::kLocal: return survey_by<Score::kLocal>(state, unwound, may_take_backward, rows);
    case Score::kMsps: return survey_by<Score::kMsps>(state, unwound, may_take_backward, rows);
  }
}

}  // namespace lowtide::online
