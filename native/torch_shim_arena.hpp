// The memory that tensors live in: one mapping, taken once, given back when the last pointer into it is gone.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace lowtide::shim {

class Arena {
 public:
  explicit Arena(std::int64_t capacity) : capacity_(capacity) {
    void* mapped = mmap(nullptr, static_cast<std::size_t>(capacity), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(mapped);
  }
  ~Arena() {
    if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(capacity_));
  }
  Arena(Arena&& other) noexcept : base_(std::exchange(other.base_, nullptr)), capacity_(other.capacity_) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  std::byte* at(std::int64_t offset) const { return base_ + offset; }
  std::int64_t offset_of(const void* pointer) const { return static_cast<const std::byte*>(pointer) - base_; }
  bool contains(const void* pointer) const {
    const auto* byte = static_cast<const std::byte*>(pointer);
    return byte >= base_ && byte < base_ + capacity_;
  }
  std::int64_t capacity() const { return capacity_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t capacity_ = 0;
};

// Arenas of budgets that are over, kept for the tensors that outlived them. Call with the lock held.
class Graveyard {
 public:
  void keep(Arena arena, std::int64_t num_pointers) {
    if (num_pointers > 0) buried_.push_back({std::move(arena), num_pointers});
  }

  // Whether `pointer` was in one of them; it is counted off then.
  bool release(const void* pointer) {
    for (std::size_t index = 0; index < buried_.size(); ++index) {
      if (!buried_[index].arena.contains(pointer)) continue;
      if (--buried_[index].num_pointers == 0) {
        std::swap(buried_[index], buried_.back());
        buried_.pop_back();
      }
      return true;
    }
    return false;
  }

  std::int64_t num_arenas() const { return static_cast<std::int64_t>(buried_.size()); }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const Grave& grave : buried_) total += grave.arena.capacity();
    return total;
  }

 private:
  struct Grave {
    Arena arena;
    std::int64_t num_pointers;
  };
  std::vector<Grave> buried_;
};

}  // namespace lowtide::shim
