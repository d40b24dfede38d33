// What ends a run that its budget cannot hold.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lowtide::online {

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

}  // namespace lowtide::online
