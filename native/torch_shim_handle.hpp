// What hangs in a storage: its handle, the cell that its present contents are, and what is told and counted of both.
#pragma once

#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "lowtide/engine.hpp"
#include "torch_shim_schema.hpp"

namespace lowtide::shim {

using online::CellId;
using online::Engine;
using online::Home;
using online::kNone;
using online::RecordId;
using online::Spot;
using online::Temper;

void release_raw(void* pointer);     // deleter of memory that no cell owns
void release_handle(void* context);  // deleter of a storage's bytes

// Where an op that is tried again puts what it takes: best fit, so that pieces of scratch fill what others left.
inline constexpr Temper kTightest = Temper::kExpensive;

class Runtime;

// Something that a listener wants to hear of.
struct Told {
  const char* kind = "";
  CellId cell = kNone;
  std::int64_t size = 0;
  const OpInfo* op = nullptr;
};

// Bytes that could not be evicted when memory ran out.
struct Holding {
  const void* storage = nullptr;
  std::int64_t size = 0;
  std::string op;  // that made them, where that is known
};

struct Handle {
  Runtime* runtime = nullptr;
  CellId cell = kNone;
  c10::StorageImpl* impl = nullptr;
  c10::weak_intrusive_ptr<c10::StorageImpl> weak{c10::intrusive_ptr<c10::StorageImpl>()};
  c10::intrusive_ptr<c10::StorageImpl> external;  // memory outside the arena
  std::uint64_t stamp = 0;                        // the call that saw it last ...
  std::int32_t use = -1;                          // ... as which of its uses
  std::int32_t num_calls = 0;                     // calls in progress that use it ...
  std::int32_t num_writers = 0;                   // ... and of these, how many write it
  bool is_gone = false;                           // its storage died during one of them
  bool is_held = false;                           // pinned until they are done, see Runtime::hold
  bool is_exposed = false;                        // others may write its bytes: nothing is recomputed from them ...
  bool is_parameter = false;                      // ... unless it is one: only optimizers write those
  bool is_shared = false;                         // memory that others may write to (numpy): see check_unchanged
  bool has_checksum = false;                      // ... and since it was written last, a record reads it:
  std::uint64_t checksum = 0;                     // ... its contents then
};

struct ShimStats {
  std::int64_t num_tracked = 0, num_passed = 0, num_foreign = 0, bytes_foreign = 0, num_externals = 0;
  std::int64_t num_unreplayable = 0, num_retries = 0, num_survivors = 0, num_restored = 0, num_lost = 0;
  double recompute_seconds = 0.0;
  double wait_seconds = 0.0;  // of ops for their inputs: recomputations and all that was done for them
  bool has_thrashed = false;  // see Runtime::look_for_thrashing
};

// Of bytes, quick and good enough to notice a change.
inline std::uint64_t checksum_of(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  const auto mix = [](std::uint64_t sum, std::uint64_t word) {
    sum = (sum ^ word) * 0x9E3779B97F4A7C15ULL;
    return sum ^ (sum >> 29);
  };
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};  // side by side: one alone waits for its own product
  std::size_t at = 0;
  for (; at + sizeof lanes <= size; at += sizeof lanes) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), bytes + at, sizeof words);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = mix(lanes[lane], words[lane]);
  }
  std::uint64_t sum = size;
  for (; at < size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, size - at));
    sum = mix(sum, word);
  }
  for (const std::uint64_t lane : lanes) sum = mix(sum, lane);
  return sum;
}

}  // namespace lowtide::shim
