// CPU time of the pool's calls while it holds about `num_blocks` blocks, a third of them holes. One line of JSON per row:
//   churn NUM_CALLS NUM_BLOCKS...
// Sizes are uneven (1 to 64 units, a twentieth of them 64 times larger; small ones 1 to 160), all drawn by a fixed seed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "lowtide/pool.hpp"
#include "lowtide/pool_small.hpp"

namespace {

using namespace lowtide::pool;

class Random {
 public:
  std::uint64_t below(std::uint64_t bound) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  std::uint64_t state_ = 7;
};

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::int64_t draw_size(Random& random) {
  const auto units = static_cast<std::int64_t>(1 + random.below(64));
  return 64 * (random.below(20) == 0 ? 64 * units : units);
}

std::int64_t draw_small(Random& random) { return static_cast<std::int64_t>(64 * (1 + random.below(160))); }

void report(const char* calls, std::int64_t num_blocks, std::int64_t num_calls, double seconds) {
  std::printf("{\"calls\": \"%s\", \"num_blocks\": %lld, \"num_calls\": %lld, \"cpu_ns_per_call\": %.1f}\n", calls,
              static_cast<long long>(num_blocks), static_cast<long long>(num_calls),
              1e9 * seconds / static_cast<double>(num_calls));
}

// A pool in use: filled up, then thinned at random.
struct Used {
  Pool pool;
  std::vector<BlockId> live;
  Random random;

  explicit Used(std::int64_t num_blocks) : pool(num_blocks * 64 * 1024, 64) {
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      const BlockId id = pool.allocate(draw_size(random), i);
      if (id != kNone) live.push_back(id);
    }
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (random.below(3) != 0) continue;
      pool.free(live[i]);
      live[i--] = live.back();
      live.pop_back();
    }
  }
};

void churn(const char* name, Place low, Place high, std::int64_t num_blocks, std::int64_t num_calls) {
  Used used(num_blocks);
  const double start = cpu_seconds();
  for (std::int64_t call = 0; call < num_calls; call += 2) {
    BlockId& slot = used.live[used.random.below(used.live.size())];
    used.pool.free(slot);
    slot = used.pool.allocate(draw_size(used.random), call, used.random.below(2) ? low : high);
    if (slot == kNone) std::abort();  // the arena is far larger than what it holds
  }
  report(name, used.pool.num_blocks(), num_calls, cpu_seconds() - start);
}

// A block is freed, the next one slides into its place, and another block is asked for.
void slides(std::int64_t num_blocks, std::int64_t num_calls) {
  Used used(num_blocks);
  Pool& pool = used.pool;
  const double start = cpu_seconds();
  for (std::int64_t call = 0; call < num_calls; call += 3) {
    BlockId& slot = used.live[used.random.below(used.live.size())];
    const BlockId next = pool[pool.free(slot)].next;
    if (next != kNone) pool.slide(next, End::kLow);
    slot = pool.allocate(draw_size(used.random), call);
    if (slot == kNone) std::abort();
  }
  report("free, slide, allocate", pool.num_blocks(), num_calls, cpu_seconds() - start);
}

void small_churn(std::int64_t num_blocks, std::int64_t num_calls) {
  Pool pool(num_blocks * 64 * 1024, 64);
  SmallRegion region(pool);
  Random random;
  std::vector<std::int64_t> live;
  for (std::int64_t i = 0; i < num_blocks; ++i) live.push_back(region.allocate(draw_small(random), i));
  const double start = cpu_seconds();
  for (std::int64_t call = 0; call < num_calls; call += 2) {
    std::int64_t& slot = live[random.below(live.size())];
    region.free(slot);
    slot = region.allocate(draw_small(random), call);
  }
  report("slabs: free, allocate", num_blocks, num_calls, cpu_seconds() - start);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::int64_t num_calls = std::atoll(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const std::int64_t num_blocks = std::atoll(argv[i]);
    churn("best fit: free, allocate", {End::kLow, Fit::kBest}, {End::kHigh, Fit::kBest}, num_blocks, num_calls);
    churn("first fit: free, allocate", {End::kLow, Fit::kFirst}, {End::kHigh, Fit::kFirst}, num_blocks, num_calls);
    slides(num_blocks, num_calls);
    small_churn(num_blocks, num_calls);
  }
}
