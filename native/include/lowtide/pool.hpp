// Memory as offsets: blocks that tile an arena in address order. The pool knows neither tensors nor pointers.
//
//   offset 0                                               capacity
//     │ owner 4 │    hole     │ owner 7 │ owner 2 │   hole   │
//     └─ End::kLow: a request takes    └─ free neighbours     │
//        the low end of its hole          coalesce at once    End::kHigh: the high end
//
// Placement is best fit by (size, offset), as in Coop (Zhang et al., NeurIPS 2023), or the first hole that is large
// enough seen from one end. Allocate, take, free and slide take O(log n) expected; owners, pins and neighbours O(1).
// Twin and oracle: src/lowtide/pool/reference.py. Standard library only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lowtide/pool_holes.hpp"

namespace lowtide::pool {

using Owner = std::int64_t;             // of the pool's user; 0 and above
inline constexpr Owner kFree = -1;      // nobody: a hole
inline constexpr Owner kSlab = -2;      // a slab of the region for small requests (pool_small.hpp)

enum class End : std::uint8_t { kLow, kHigh };
enum class Fit : std::uint8_t {
  kBest,   // the smallest hole that is large enough, the lowest of several
  kFirst,  // the hole nearest to the end that is large enough
};

struct Place {
  End end = End::kLow;  // of the hole: what is taken; with Fit::kFirst also of the arena: where the search begins
  Fit fit = Fit::kBest;
};

struct Block {
  std::int64_t offset = 0;
  std::int64_t size = 0;  // a multiple of the alignment, above 0 while the block lives
  Owner owner = kFree;
  std::int32_t pins = 0;
  BlockId previous = kNone;  // neighbours in address order
  BlockId next = kNone;
};

// What the caller asks for makes no sense; the text says what and which numbers.
struct PoolError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class Pool {
 public:
  // `base` is the offset at which the blocks begin (above 0 for a slab within another pool).
  Pool(std::int64_t capacity, std::int64_t alignment, std::int64_t base = 0)
      : capacity_(capacity), alignment_(alignment), high_water_(base) {
    if (alignment <= 0 || (alignment & (alignment - 1)) != 0) {
      throw PoolError("alignment " + std::to_string(alignment) + " is no power of two");
    }
    if (capacity <= 0 || capacity % alignment != 0) {
      throw PoolError("capacity " + std::to_string(capacity) + " is no positive multiple of the alignment " +
                      std::to_string(alignment));
    }
    if (base < 0 || base % alignment != 0 || base > std::numeric_limits<std::int64_t>::max() - capacity) {
      throw PoolError("base " + std::to_string(base) + " is no multiple of the alignment " + std::to_string(alignment) +
                      " from 0 to 2^63 - 1 - " + std::to_string(capacity));
    }
    first_ = last_ = new_block();
    blocks_[first_].offset = base;
    blocks_[first_].size = capacity;
    insert_hole(first_);
  }

  // A block of `size` bytes, rounded up to the alignment (0 counts as 1); kNone where no hole holds it.
  BlockId allocate(std::int64_t size, Owner owner, Place place = {}) {
    check_request(size, owner);
    if (size > largest_hole()) return kNone;
    const std::int64_t rounded = round_up(size);
    const BlockId hole = find_hole(rounded, place);
    return hole == kNone ? kNone : carve(hole, rounded, owner, place.end);
  }

  // The same from this very hole.
  BlockId take(BlockId hole, std::int64_t size, Owner owner, End end = End::kLow) {
    check_request(size, owner);
    check_alive(hole);
    const Block& block = blocks_[hole];
    if (block.owner != kFree) throw PoolError(name_of(hole) + " is no hole: it has an owner");
    if (size > block.size) {
      throw PoolError("the hole of " + std::to_string(block.size) + " bytes at offset " + std::to_string(block.offset) +
                      " cannot hold " + std::to_string(size) + " bytes");
    }
    return carve(hole, round_up(size), owner, end);
  }

  // Give a block back, whatever its pins; returns the hole that it is part of then. Ids of the block and of free
  // neighbours may end with this.
  BlockId free(BlockId id) {
    check_owned(id);
    blocks_[id].owner = kFree;
    blocks_[id].pins = 0;
    free_bytes_ += blocks_[id].size;
    return coalesce(id);
  }

  void set_owner(BlockId id, Owner owner) {
    check_owned(id);
    check_owner(owner);
    blocks_[id].owner = owner;
  }

  void pin(BlockId id) {
    check_owned(id);
    if (blocks_[id].pins == std::numeric_limits<std::int32_t>::max()) {
      throw PoolError(name_of(id) + " has 2147483647 pins, the most that are counted");
    }
    ++blocks_[id].pins;
  }

  void unpin(BlockId id) {
    check_owned(id);
    if (blocks_[id].pins == 0) throw PoolError(name_of(id) + " is not pinned");
    --blocks_[id].pins;
  }

  // One step of compaction: move a block to the far end of the hole next to it; it stays where there is none.
  //   slide(b, kLow):  │ a │  hole  │ b │   ->   │ a │ b │  hole  │
  BlockId slide(BlockId id, End end) {
    check_owned(id);
    if (blocks_[id].pins > 0) throw PoolError(name_of(id) + " is pinned and cannot move");
    const BlockId hole = end == End::kLow ? blocks_[id].previous : blocks_[id].next;
    if (hole == kNone || blocks_[hole].owner != kFree) return id;
    erase_hole(hole);
    if (end == End::kLow) {
      swap_neighbours(hole, id);
    } else {
      swap_neighbours(id, hole);
    }
    high_water_ = std::max(high_water_, blocks_[id].offset + blocks_[id].size);
    coalesce(hole);
    return id;
  }

  // The hole that begins at an offset, or kNone.
  BlockId hole_at(std::int64_t offset) const { return by_offset_.at(offset); }

  // Throws where no pool could serve such a request.
  static void check_request(std::int64_t size, Owner owner) {
    if (size < 0) throw PoolError("a block of " + std::to_string(size) + " bytes is asked for: below 0");
    check_owner(owner);
  }

  // Unchecked; a reference lasts until the next call that changes the pool.
  const Block& operator[](BlockId id) const { return blocks_[static_cast<std::size_t>(id)]; }
  bool contains(BlockId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < blocks_.size() && blocks_[id].size > 0;
  }
  BlockId first() const { return first_; }
  BlockId last() const { return last_; }

  std::int64_t capacity() const { return capacity_; }
  std::int64_t alignment() const { return alignment_; }
  std::int64_t free_bytes() const { return free_bytes_; }
  std::int64_t largest_hole() const { return by_offset_.largest(); }
  std::int64_t high_water() const { return high_water_; }  // the highest end that an owned block ever had
  std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks_.size() - unused_.size()); }

 private:
  // Only for sizes up to a hole's, which is a multiple of the alignment: it cannot overflow.
  std::int64_t round_up(std::int64_t size) const {
    return size == 0 ? alignment_ : (size + (alignment_ - 1)) & ~(alignment_ - 1);
  }

  BlockId find_hole(std::int64_t size, Place place) const {
    if (place.fit == Fit::kBest) return by_size_.first_at_least(size);
    return place.end == End::kLow ? by_offset_.first_at_least(size) : by_offset_.last_at_least(size);
  }

  BlockId carve(BlockId hole, std::int64_t size, Owner owner, End end) {
    const BlockId id = blocks_[hole].size == size ? take_whole(hole) : take_part(hole, size, end);
    Block& block = blocks_[id];
    block.owner = owner;
    free_bytes_ -= size;
    high_water_ = std::max(high_water_, block.offset + size);
    return id;
  }

  BlockId take_whole(BlockId hole) {
    erase_hole(hole);
    return hole;
  }

  // The rest keeps the hole's id, and its place in the order by offset.
  BlockId take_part(BlockId hole, std::int64_t size, End end) {
    const BlockId id = new_block();
    Block& rest = blocks_[hole];
    Block& block = blocks_[id];
    block.size = size;
    rest.size -= size;
    if (end == End::kLow) {
      block.offset = rest.offset;
      rest.offset += size;
      link(rest.previous, id);
      link(id, hole);
    } else {
      block.offset = rest.offset + rest.size;
      link(id, rest.next);
      link(hole, id);
    }
    by_size_.resize(hole, rest.size, rest.offset);
    by_offset_.resize(hole, rest.size, rest.offset);
    return id;
  }

  // Merge a free block that is not yet a hole with its free neighbours.
  BlockId coalesce(BlockId id) {
    const BlockId before = blocks_[id].previous;
    const BlockId after = blocks_[id].next;
    const bool has_hole_before = before != kNone && blocks_[before].owner == kFree;
    const bool has_hole_after = after != kNone && blocks_[after].owner == kFree;
    if (!has_hole_before && !has_hole_after) {
      insert_hole(id);
      return id;
    }
    if (has_hole_before && has_hole_after) erase_hole(after);
    const BlockId hole = has_hole_before ? before : after;
    if (has_hole_before) absorb_next(before);  // id
    if (has_hole_before && has_hole_after) absorb_next(before);
    if (!has_hole_before) absorb_previous(after);  // id
    by_size_.resize(hole, blocks_[hole].size, blocks_[hole].offset);
    by_offset_.resize(hole, blocks_[hole].size, blocks_[hole].offset);
    return hole;
  }

  void absorb_next(BlockId id) {
    const BlockId gone = blocks_[id].next;
    blocks_[id].size += blocks_[gone].size;
    link(id, blocks_[gone].next);
    discard(gone);
  }

  void absorb_previous(BlockId id) {
    const BlockId gone = blocks_[id].previous;
    blocks_[id].size += blocks_[gone].size;
    blocks_[id].offset = blocks_[gone].offset;
    link(blocks_[gone].previous, id);
    discard(gone);
  }

  // Two neighbours change places.
  void swap_neighbours(BlockId left, BlockId right) {
    const BlockId before = blocks_[left].previous;
    const BlockId after = blocks_[right].next;
    blocks_[right].offset = blocks_[left].offset;
    blocks_[left].offset += blocks_[right].size;
    link(before, right);
    link(right, left);
    link(left, after);
  }

  void link(BlockId left, BlockId right) {
    (left == kNone ? first_ : blocks_[left].next) = right;
    (right == kNone ? last_ : blocks_[right].previous) = left;
  }

  void insert_hole(BlockId id) {
    by_size_.insert(id, blocks_[id].size, blocks_[id].offset);
    by_offset_.insert(id, blocks_[id].size, blocks_[id].offset);
  }

  void erase_hole(BlockId id) {
    by_size_.erase(id);
    by_offset_.erase(id);
  }

  BlockId new_block() {
    if (!unused_.empty()) {
      const BlockId id = unused_.back();
      unused_.pop_back();
      return id;
    }
    if (blocks_.size() > static_cast<std::size_t>(std::numeric_limits<BlockId>::max())) {
      throw PoolError("a pool cannot have more than 2147483648 blocks");
    }
    blocks_.emplace_back();
    return static_cast<BlockId>(blocks_.size() - 1);
  }

  void discard(BlockId id) {
    blocks_[id] = Block{};
    unused_.push_back(id);
  }

  static void check_owner(Owner owner) {
    if (owner == kFree) throw PoolError("owner -1 is reserved for holes");
  }

  void check_alive(BlockId id) const {
    if (contains(id)) return;
    throw PoolError("there is no block " + std::to_string(id) + ": it was freed, or never given out");
  }

  void check_owned(BlockId id) const {
    check_alive(id);
    if (blocks_[id].owner == kFree) throw PoolError(name_of(id) + " is free already");
  }

  std::string name_of(BlockId id) const {
    const Block& block = blocks_[id];
    return "the block of " + std::to_string(block.size) + " bytes at offset " + std::to_string(block.offset);
  }

  std::int64_t capacity_;
  std::int64_t alignment_;
  std::int64_t free_bytes_ = capacity_;
  std::int64_t high_water_;
  std::vector<Block> blocks_;    // by BlockId
  std::vector<BlockId> unused_;  // ids to be given out again
  BlockId first_ = kNone;
  BlockId last_ = kNone;
  HoleTree<HoleOrder::kBySize> by_size_;
  HoleTree<HoleOrder::kByOffset> by_offset_;
};

}  // namespace lowtide::pool
