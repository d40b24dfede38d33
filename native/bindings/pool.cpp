// lowtide._pool: the native pool, as numbers in and out. lowtide.pool.native gives it names.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lowtide/pool.hpp"
#include "lowtide/pool_small.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using lowtide::pool::Block;
using lowtide::pool::BlockId;
using lowtide::pool::End;
using lowtide::pool::Fit;
using lowtide::pool::kNone;
using lowtide::pool::Owner;
using lowtide::pool::Pool;
using lowtide::pool::PoolError;
using lowtide::pool::SmallOptions;
using lowtide::pool::SmallRegion;

using Row = std::tuple<std::int64_t, std::int64_t, Owner, std::int32_t>;  // offset, size, owner, pins

End end_of(bool is_high) { return is_high ? End::kHigh : End::kLow; }

void add_rows(const Pool& pool, std::vector<Row>& rows) {
  for (BlockId id = pool.first(); id != kNone; id = pool[id].next) {
    const Block& block = pool[id];
    rows.emplace_back(block.offset, block.size, block.owner, block.pins);
  }
}

std::vector<Row> rows_of(const Pool& pool) {
  std::vector<Row> rows;
  rows.reserve(static_cast<std::size_t>(pool.num_blocks()));
  add_rows(pool, rows);
  return rows;
}

std::vector<Row> rows_of_slabs(const SmallRegion& region) {
  std::vector<Row> rows;
  region.for_each_slab([&](std::int64_t, const Pool& tiles) { add_rows(tiles, rows); });
  return rows;
}

std::int64_t offset_of(const Pool& pool, BlockId id) {
  if (!pool.contains(id)) throw PoolError("there is no block " + std::to_string(id));
  return pool[id].offset;
}

}  // namespace

NB_MODULE(_pool, module) {
  module.doc() = "Native core of the pool: blocks that tile an arena in address order, small requests in slabs.";
  nb::exception<PoolError>(module, "PoolError", PyExc_ValueError);

  nb::class_<Pool>(module, "Pool")
      .def(nb::init<std::int64_t, std::int64_t>(), "capacity"_a, "alignment"_a)
      .def(
          "allocate",
          [](Pool& pool, std::int64_t size, Owner owner, bool is_high, bool is_first) {
            return pool.allocate(size, owner, {end_of(is_high), is_first ? Fit::kFirst : Fit::kBest});
          },
          "size"_a, "owner"_a, nb::kw_only(), "is_high"_a = false, "is_first"_a = false,
          "A block's id, or -1 where no hole holds it.")
      .def(
          "take",
          [](Pool& pool, BlockId hole, std::int64_t size, Owner owner, bool is_high) {
            return pool.take(hole, size, owner, end_of(is_high));
          },
          "hole"_a, "size"_a, "owner"_a, nb::kw_only(), "is_high"_a = false)
      .def("free", &Pool::free, "block"_a, "Give a block back; the id of the hole that it is part of then.")
      .def("set_owner", &Pool::set_owner, "block"_a, "owner"_a)
      .def("pin", &Pool::pin, "block"_a)
      .def("unpin", &Pool::unpin, "block"_a)
      .def(
          "slide", [](Pool& pool, BlockId block, bool is_high) { return pool.slide(block, end_of(is_high)); },
          "block"_a, nb::kw_only(), "is_high"_a = false)
      .def("hole_at", &Pool::hole_at, "offset"_a, "The hole that begins at an offset, or -1.")
      .def("offset_of", &offset_of, "block"_a)
      .def("blocks", &rows_of, "(offset, size, owner, pins) of each block in address order; owner -1: a hole.")
      .def_prop_ro("capacity", &Pool::capacity)
      .def_prop_ro("free_bytes", &Pool::free_bytes)
      .def_prop_ro("largest_hole", &Pool::largest_hole)
      .def_prop_ro("high_water", &Pool::high_water)
      .def_prop_ro("num_blocks", &Pool::num_blocks);

  nb::class_<SmallRegion>(module, "SmallRegion")
      .def(
          "__init__",
          [](SmallRegion* self, Pool& pool, std::int64_t small_bytes, std::int64_t slab_bytes) {
            new (self) SmallRegion(pool, SmallOptions{.small_bytes = small_bytes, .slab_bytes = slab_bytes});
          },
          "pool"_a, nb::kw_only(), "small_bytes"_a, "slab_bytes"_a, nb::keep_alive<1, 2>())
      .def("allocate", &SmallRegion::allocate, "size"_a, "owner"_a, "An offset, or -1: then ask the pool itself.")
      .def("free", &SmallRegion::free, "offset"_a)
      .def(
          "set_owner",
          [](SmallRegion& region, std::int64_t offset, Owner owner) {
            const auto tile = region.at(offset);
            tile.tiles->set_owner(tile.id, owner);
          },
          "offset"_a, "owner"_a)
      .def(
          "pin",
          [](SmallRegion& region, std::int64_t offset) {
            const auto tile = region.at(offset);
            tile.tiles->pin(tile.id);
          },
          "offset"_a)
      .def(
          "unpin",
          [](SmallRegion& region, std::int64_t offset) {
            const auto tile = region.at(offset);
            tile.tiles->unpin(tile.id);
          },
          "offset"_a)
      .def("blocks", &rows_of_slabs, "(offset, size, owner, pins) of what tiles the slabs, in address order.")
      .def_prop_ro("num_slabs", &SmallRegion::num_slabs)
      .def_prop_ro("used_bytes", &SmallRegion::used_bytes);
}
