// A region for small requests: slabs taken from a pool, each tiled by a little pool of its own.
//
//   Pool           │ slab │ slab │     │ owner 4 │        hole        │ owner 7 │
//                  ╱      ╲       └ Place{kLow, kFirst}: slabs gather at one end
//   its slab    │ 0 │ 3 │ │ 1 │       best fit inside; owners of the caller
//
// Coop (Zhang et al., NeurIPS 2023) keeps requests of 10 KiB and less apart: they are never evicted, and among large
// blocks they would cut the windows that can be. A slab is pinned in the pool, and given back as soon as it is empty.
// Of the slabs that can serve a request the one with the smallest largest hole does, so that emptier ones get empty.
// Allocate and free take O(log n) expected. Twin and oracle: src/lowtide/pool/reference.py. Standard library only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/pool.hpp"

namespace lowtide::pool {

struct SmallOptions {
  std::int64_t small_bytes = 10 * 1024;  // the largest request that is served
  std::int64_t slab_bytes = 64 * 1024;   // a multiple of the pool's alignment, at least small_bytes
  Place place{End::kLow, Fit::kFirst};   // of the slabs in the pool
};

class SmallRegion {
 public:
  // `pool` outlives the region.
  SmallRegion(Pool& pool, SmallOptions options = {}) : pool_(&pool), options_(options) {
    if (options.slab_bytes <= 0 || options.slab_bytes % pool.alignment() != 0) {
      throw PoolError("slabs of " + std::to_string(options.slab_bytes) +
                      " bytes are no positive multiple of the alignment " + std::to_string(pool.alignment()));
    }
    if (options.small_bytes < 0 || options.small_bytes > options.slab_bytes) {
      throw PoolError("small requests of up to " + std::to_string(options.small_bytes) + " bytes do not fit slabs of " +
                      std::to_string(options.slab_bytes) + " bytes");
    }
  }
  SmallRegion(const SmallRegion&) = delete;
  SmallRegion& operator=(const SmallRegion&) = delete;

  bool is_small(std::int64_t size) const { return size <= options_.small_bytes; }

  // The offset of `size` bytes in the arena; kNone where the request is not small or no slab can be had: then the pool
  // itself may still hold it.
  std::int64_t allocate(std::int64_t size, Owner owner) {
    Pool::check_request(size, owner);
    if (!is_small(size)) return kNone;
    auto found = by_room_.lower_bound({std::max<std::int64_t>(size, 1), 0});
    if (found == by_room_.end()) {
      if (!add_slab()) return kNone;
      found = by_room_.lower_bound({std::max<std::int64_t>(size, 1), 0});
    }
    const auto [room, start] = *found;
    Slab& slab = slabs_.at(start);
    const BlockId id = slab.tiles.allocate(size, owner);
    const Block& tile = slab.tiles[id];
    slab.tile_at[unit_of(tile.offset - start)] = id;
    used_bytes_ += tile.size;
    update_room(start, room, slab.tiles.largest_hole());
    return tile.offset;
  }

  void free(std::int64_t offset) {
    const Tile tile = at(offset);
    Slab& slab = slabs_.at(tile.slab_offset);
    used_bytes_ -= (*tile.tiles)[tile.id].size;
    const std::int64_t room = slab.tiles.largest_hole();
    slab.tiles.free(tile.id);
    slab.tile_at[unit_of(offset - tile.slab_offset)] = kNone;
    if (slab.tiles.free_bytes() < slab.tiles.capacity()) {
      update_room(tile.slab_offset, room, slab.tiles.largest_hole());
      return;
    }
    by_room_.erase({room, tile.slab_offset});
    pool_->free(slab.block);
    slabs_.erase(tile.slab_offset);
  }

  // What was given out at an offset: `tiles` is the little pool of its slab, where owners and pins are kept. Don't
  // allocate or free in there. Throws PoolError where nothing was given out.
  struct Tile {
    Pool* tiles;
    BlockId id;
    std::int64_t slab_offset;
  };
  Tile at(std::int64_t offset) {
    const auto above = slabs_.upper_bound(offset);
    if (above == slabs_.begin()) throw_unknown(offset);
    auto& [start, slab] = *std::prev(above);
    const std::int64_t inside = offset - start;
    if (inside >= options_.slab_bytes || inside % pool_->alignment() != 0) throw_unknown(offset);
    const BlockId id = slab.tile_at[unit_of(inside)];
    if (id == kNone) throw_unknown(offset);
    return {&slab.tiles, id, start};
  }

  // Each slab's offset and tiles, in address order.
  template <class Visit>
  void for_each_slab(Visit visit) const {
    for (const auto& [start, slab] : slabs_) visit(start, slab.tiles);
  }

  std::int64_t num_slabs() const { return static_cast<std::int64_t>(slabs_.size()); }
  std::int64_t slab_bytes() const { return options_.slab_bytes * num_slabs(); }  // taken from the pool
  std::int64_t used_bytes() const { return used_bytes_; }                        // given out, rounded up

 private:
  struct Slab {
    BlockId block;  // in the pool
    Pool tiles;
    std::vector<BlockId> tile_at;  // by distance from the slab's start, in units of the alignment
  };

  bool add_slab() {
    const BlockId block = pool_->allocate(options_.slab_bytes, kSlab, options_.place);
    if (block == kNone) return false;
    pool_->pin(block);
    const std::int64_t start = (*pool_)[block].offset;
    slabs_.emplace(start, Slab{block, Pool(options_.slab_bytes, pool_->alignment(), start),
                               std::vector<BlockId>(unit_of(options_.slab_bytes), kNone)});
    by_room_.emplace(options_.slab_bytes, start);
    return true;
  }

  std::size_t unit_of(std::int64_t inside) const { return static_cast<std::size_t>(inside / pool_->alignment()); }

  void update_room(std::int64_t start, std::int64_t before, std::int64_t after) {
    if (before == after) return;
    auto entry = by_room_.extract({before, start});
    entry.value() = {after, start};
    by_room_.insert(std::move(entry));
  }

  [[noreturn]] static void throw_unknown(std::int64_t offset) {
    throw PoolError("no small block begins at offset " + std::to_string(offset) + ": it was freed, or never given out");
  }

  Pool* pool_;
  SmallOptions options_;
  std::int64_t used_bytes_ = 0;
  std::map<std::int64_t, Slab> slabs_;                       // by offset in the arena
  std::set<std::pair<std::int64_t, std::int64_t>> by_room_;  // largest hole, offset
};

}  // namespace lowtide::pool
