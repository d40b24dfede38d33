// The online engine's log: bytes, cells and calls, by number. src/lowtide/ir/event_log.py reads it again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::online {

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

}  // namespace lowtide::online
