// What the online engine leaves to others: the simulator's host does nothing, the runtime's is PyTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lowtide/tape.hpp"

namespace lowtide::online {

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

}  // namespace lowtide::online
