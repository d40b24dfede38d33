// The loops over ranges of stages where the search spends its time, compiled for AVX2 too where that can be chosen
// when the program is loaded.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define LOWTIDE_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define LOWTIDE_CLONES
#endif

namespace lowtide {

// Add `bytes` to each load; returns by how much the overflow above `budget` grows in all.
LOWTIDE_CLONES inline std::int64_t add_bytes(std::int64_t* load, std::int64_t count, std::int64_t bytes,
                                             std::int64_t budget) {
  std::int64_t change = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t before = load[i] - budget;
    const std::int64_t after = before + bytes;
    load[i] += bytes;
    change += (after > 0 ? after : 0) - (before > 0 ? before : 0);
  }
  return change;
}

// By how much the overflow would grow if `bytes` (at least 0) were added to each load.
LOWTIDE_CLONES inline std::int64_t overflow_of_adding(const std::int64_t* load, std::int64_t count, std::int64_t bytes,
                                                      std::int64_t budget) {
  std::int64_t change = 0;
  const std::int64_t limit = budget - bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t over = load[i] - limit;
    const std::int64_t capped = over < bytes ? over : bytes;
    change += capped > 0 ? capped : 0;
  }
  return change;
}

// By how much the overflow would shrink if `bytes` (at least 0) were taken from each load.
LOWTIDE_CLONES inline std::int64_t overflow_of_removing(const std::int64_t* load, std::int64_t count,
                                                        std::int64_t bytes, std::int64_t budget) {
  std::int64_t change = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t over = load[i] - budget;
    const std::int64_t capped = over < bytes ? over : bytes;
    change += capped > 0 ? capped : 0;
  }
  return change;
}

}  // namespace lowtide
