// PyTorch as the engine's outside: storages behind cells, raw memory for running ops, replays.
//
//   StorageImpl ──DataPtr{address, Handle}──▶ Handle ──▶ cell        the storage's present contents
//                       ▲                        │
//       evicted: {null, Handle}                  └── weak reference back
//
// A Handle hangs in the DataPtr of its storage, so finding it costs no search and it dies with the storage. Memory from
// outside the arena (parameters made before, numpy arrays) keeps its DataPtr: a table finds its handle, which holds the
// storage itself, because a record may need the bytes after the program has dropped them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lowtide/engine.hpp"
#include "torch_shim_arena.hpp"
#include "torch_shim_cost.hpp"
#include "torch_shim_errors.hpp"
#include "torch_shim_handle.hpp"
#include "torch_shim_notes.hpp"
#include "torch_shim_recipe.hpp"
#include "torch_shim_schema.hpp"
#include "torch_shim_signals.hpp"

namespace lowtide::shim {

class Runtime final : public online::Host {
 public:
  Runtime(const online::EngineConfig& config, double thrash_limit, c10::Allocator* outside)
      : arena_(config.capacity), engine_(config, *this), thrash_limit_(thrash_limit), outside_(outside) {}

  Engine& engine() { return engine_; }
  OpTable& ops() { return ops_; }
  ShimStats& stats() { return stats_; }
  const Arena& arena() const { return arena_; }
  bool contains(const void* pointer) const { return arena_.contains(pointer); }

  // ------------------------------------------------------------------ raw memory
  c10::DataPtr allocate(std::size_t size) {
    if (size == 0) return {nullptr, nullptr, &release_raw, c10::Device(c10::kCPU)};
    Spot spot;
    try {
      spot = engine_.allocate(static_cast<std::int64_t>(size), temper_);
    } catch (const online::OutOfMemory& error) {
      shortage_ = raw_bytes_ + block_bytes(size);
      note_holdings();
      if (is_replaying_) throw;  // the engine knows what to try next
      throw OutOfMemoryError(describe(error, op_name()));
    }
    raw_.emplace(spot.offset, Raw{spot, static_cast<std::int64_t>(size)});
    raw_bytes_ += block_bytes(size);
    std::byte* address = arena_.at(spot.offset);
    return {address, address, &release_raw, c10::Device(c10::kCPU)};
  }

  void free_raw(void* pointer) {
    const auto found = raw_.find(arena_.offset_of(pointer));
    if (found == raw_.end()) return;
    const Raw raw = found->second;
    raw_.erase(found);
    raw_bytes_ -= block_bytes(static_cast<std::size_t>(raw.size));
    engine_.free_spot(raw.spot, raw.size);
  }

  // Whether a request may soon find no room.
  bool is_scarce() const {
    const pool::Pool& memory = engine_.memory();
    return engine_.stats().num_searches > 0 || memory.largest_hole() < memory.capacity() / 2;
  }

  // Memory that no cell owns, now; and as it would have been had the last request that failed been served.
  std::int64_t raw_bytes() const { return raw_bytes_; }
  std::int64_t shortage_with_raw() const { return shortage_; }

  struct Raw {
    Spot spot;
    std::int64_t size = 0;  // bytes, as asked for
  };

  // The raw memory behind a storage, or null.
  const Raw* raw_of(const c10::StorageImpl* storage) const {
    const c10::DataPtr& data = const_cast<c10::StorageImpl*>(storage)->_mutable_data_ptr_no_checks();
    if (data.get_deleter() != &release_raw || !arena_.contains(data.get())) return nullptr;
    const auto found = raw_.find(arena_.offset_of(data.get()));
    return found == raw_.end() ? nullptr : &found->second;
  }

  // Take raw memory out of the table: a cell owns it from now on.
  Raw take_raw(const Raw* raw) {
    const Raw taken = *raw;
    raw_.erase(taken.spot.offset);
    raw_bytes_ -= block_bytes(static_cast<std::size_t>(taken.size));
    return taken;
  }

  // ------------------------------------------------------------------ storages
  Handle* handle_of(c10::StorageImpl* storage) {
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (data.get_deleter() != &release_handle) return nullptr;
    auto* handle = static_cast<Handle*>(data.get_context());
    if (handle->runtime != this) return nullptr;
    if (handle->impl != storage) point_at(handle, storage);  // its bytes were swapped into another storage
    return handle;
  }

  // The handle of a storage whose contents are there already: a leaf where it is seen for the first time.
  Handle* handle_for(c10::StorageImpl* storage) {
    if (Handle* known = handle_of(storage)) return known;
    if (const Raw* raw = raw_of(storage)) {
      forget_external(storage);
      const Raw taken = take_raw(raw);
      Handle* handle = attach(storage);
      bind_leaf(handle, taken.size, taken.spot);
      return handle;
    }
    return external_for(storage);
  }

  // Hang a handle into a storage with raw memory; the caller binds it to a cell.
  Handle* attach(c10::StorageImpl* storage) {
    Handle* handle = take_handle();
    point_at(handle, storage);
    put(handle, storage->_mutable_data_ptr_no_checks().get());
    return handle;
  }

  void bind(Handle* handle, CellId cell) {
    if (static_cast<std::size_t>(cell) >= by_cell_.size()) by_cell_.resize(static_cast<std::size_t>(cell) * 2 + 64);
    by_cell_[cell] = handle;
    handle->cell = cell;
  }

  // The handle of a storage that has been seen, or null.
  Handle* known(c10::StorageImpl* storage) {
    if (Handle* handle = handle_of(storage)) return handle;
    const auto found = externals_.find(storage);
    return found == externals_.end() ? nullptr : found->second;
  }

  // Contents that no op has made; the call that is being noted goes on afterwards.
  void bind_leaf(Handle* handle, std::int64_t size, const Spot& spot) {
    if (!notes_.is_on) return bind(handle, engine_.add_leaf(size, spot));
    const bool is_external = spot.home == Home::kExternal;
    Note& note = notes_.begin(engine_);
    note.flags = is_external ? Note::kExternal : 0;
    bind(handle, engine_.add_leaf(size, spot));
    note.outputs.push_back(notes_.name(engine_, handle->cell));
    note.overwritten.push_back(-1);
    note.sizes.push_back(size);
    note.tempers.push_back(static_cast<std::int32_t>(Temper::kResident));
  }

  // The storage is about to hold another version: the old cell must not reach it any more.
  void unbind(Handle* handle) {
    if (handle->cell != kNone) by_cell_[handle->cell] = nullptr;
    handle->cell = kNone;
  }

  // The program has dropped a storage.
  void storage_gone(Handle* handle) {
    handle->is_gone = true;
    const CellId cell = std::exchange(handle->cell, kNone);
    if (cell != kNone) {
      by_cell_[cell] = nullptr;
      release_cell(cell);
    }
    if (handle->num_calls == 0) give_handle(handle);
  }

  // Calls in progress have locked an older cell, whose bytes this one has taken over: they stay where they are until
  // the last of these calls is done.
  void hold(Handle* handle) {
    if (handle->num_calls == 0 || handle->is_held) return;
    engine_.pin(handle->cell);
    handle->is_held = true;
  }

  void end_use(Handle* handle) {
    if (--handle->num_calls > 0) return;
    const bool is_held = std::exchange(handle->is_held, false);
    if (handle->is_gone) {
      give_handle(handle);
    } else if (is_held && engine_.cell(handle->cell).pins > 0) {
      engine_.unpin(handle->cell);
    }
  }

  void* data_of(CellId cell) {
    const online::Cell& subject = engine_.cell(cell);
    if (subject.spot.home != Home::kExternal) return arena_.at(subject.spot.offset);
    const auto copied = taken_out_.find(cell);
    if (copied != taken_out_.end()) return copied->second.get();
    return const_cast<void*>(handle_by_cell(cell)->external->data());
  }

  // Before a replay reads memory that is not ours: numpy may have written to it, and then the result would be another.
  void check_unchanged(CellId cell) const {
    const Handle* handle = handle_by_cell(cell);
    if (handle == nullptr || !handle->has_checksum || taken_out_.count(cell) != 0) return;
    if (checksum_of(handle->external->data(), handle->external->nbytes()) == handle->checksum) return;
    throw std::runtime_error(
        "lowtide: memory that a tensor shares with numpy (torch.from_numpy, or a buffer) was changed from outside while "
        "values computed from it were still needed, and one of them must be computed again. Give torch a copy: "
        "torch.tensor(array).");
  }

  // A record is about to read a storage. False where its bytes are others than the records before have read; of what
  // optimizers alone write that is not asked.
  static bool remember(Handle* handle) {
    if (handle->external == nullptr) return true;
    handle->is_shared |= !handle->external->resizable();  // numpy() sees to that
    if (!handle->is_shared || (handle->has_checksum && handle->is_parameter)) return true;
    const std::uint64_t before = std::exchange(
        handle->checksum, checksum_of(handle->external->data(), handle->external->nbytes()));
    return !std::exchange(handle->has_checksum, true) || handle->checksum == before;
  }

  // Where the bytes of a storage are now, null: evicted.
  void put(Handle* handle, void* address) {
    c10::DataPtr& data = handle->impl->_mutable_data_ptr_no_checks();
    data.release_context();
    data = c10::DataPtr(address, handle, &release_handle, c10::Device(c10::kCPU));
  }

  // Externals that only we still hold: the program has dropped them. Now and then.
  void sweep_externals() {
    if (++sweep_clock_ < std::max<std::size_t>(256, externals_.size())) return;
    sweep_clock_ = 0;
    std::vector<CellId> dropped;
    for (const auto& [storage, handle] : externals_) {
      if (!handle->is_gone && handle->num_calls == 0 && handle->external.use_count() == 1) {
        handle->is_gone = true;
        dropped.push_back(handle->cell);
      }
    }
    for (const CellId cell : dropped) release_cell(cell);
  }

  // To be destroyed once the lock is given back: the deleters of foreign memory may want the GIL.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> take_dropped() { return std::exchange(dropped_, {}); }

  // ------------------------------------------------------------------ records
  // An empty recipe, and back with one that is not wanted (any more): their vectors keep their memory.
  std::unique_ptr<Recipe> take_recipe() {
    if (spare_recipes_.empty()) return std::make_unique<Recipe>();
    std::unique_ptr<Recipe> recipe = std::move(spare_recipes_.back());
    spare_recipes_.pop_back();
    return recipe;
  }

  void give_recipe(std::unique_ptr<Recipe> recipe) {
    recipe->clear();
    spare_recipes_.push_back(std::move(recipe));
  }

  void keep(RecordId record, std::unique_ptr<Recipe> recipe) {
    if (static_cast<std::size_t>(record) >= recipes_.size()) recipes_.resize(static_cast<std::size_t>(record) * 2 + 64);
    recipes_[record] = std::move(recipe);
  }

  void set_running(const OpInfo* info, Temper temper) {
    running_ = info;
    temper_ = temper;
  }

  // ------------------------------------------------------------------ what is told
  // Remember who holds what cannot be evicted now: an error is about to be thrown.
  void note_holdings() {
    holdings_.clear();
    for (const Handle* handle : by_cell_) {
      if (handle == nullptr || handle->external != nullptr) continue;
      const online::Cell& cell = engine_.cell(handle->cell);
      if (!cell.is_resident() || cell.spot.home == Home::kExternal || engine_.may_evict(handle->cell)) continue;
      Holding& holding = holdings_.emplace_back();
      holding.storage = handle->impl;
      holding.size = cell.size;
      if (cell.producer != kNone) holding.op = recipes_[static_cast<std::size_t>(cell.producer)]->info->name;
    }
    if (raw_bytes_ > 0) holdings_.push_back({nullptr, raw_bytes_, "scratch"});
  }
  const std::vector<Holding>& holdings() const { return holdings_; }
  // What a shortage that the engine got over has noted says nothing of a later one.
  void forget_holdings() { holdings_.clear(); }

  void keep_notes() { notes_.is_on = true; }
  void stop_notes() {
    notes_.is_on = false;
    engine_.set_log(nullptr);
  }
  Notes& notes() { return notes_; }

  void listen(bool is_listened) {
    is_listened_ = is_listened;
    told_.clear();
  }
  bool has_told() const { return !told_.empty(); }
  std::vector<Told> take_told() { return std::exchange(told_, {}); }

  std::string op_name() const { return running_ == nullptr ? std::string() : running_->name; }
  std::vector<CellId>& scratch_cells() { return scratch_cells_; }
  std::uint64_t next_stamp() { return ++stamp_; }

  void limit_recompute() {
    engine_.set_max_cost((1.0 + thrash_limit_) * engine_.stats().base_cost + kThrashSlack);
  }

  // Once, soon after ops have begun to wait for their inputs for longer than all else takes.
  bool has_begun_to_thrash() { return std::exchange(is_alarming_, false); }

  // While one lives, what is recomputed is recomputed for an op that has not begun: it waits, and Interrupted may end that.
  class Waiting {
   public:
    explicit Waiting(Runtime& runtime) : runtime_(runtime) { runtime.is_waiting_ = true; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { runtime_.stop_waiting(); }

   private:
    Runtime& runtime_;
  };

  // ------------------------------------------------------------------ the engine's callbacks
  void replay(RecordId record, std::vector<Spot>& spots) override;  // torch_shim_replay.hpp

  std::int64_t shortage() const override { return std::max<std::int64_t>(shortage_ - replay_raw_before_, 0); }

  void evicted(CellId cell) override {
    if (is_listened_) told_.push_back({"evict", cell, engine_.cell(cell).size, nullptr});
    Handle* handle = handle_by_cell(cell);
    if (handle == nullptr) return;
    put(handle, nullptr);
    handle->impl->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(kEvictedMessage));
  }

  void refilled(CellId cell) override {
    Handle* handle = handle_by_cell(cell);
    if (handle == nullptr) return;
    put(handle, arena_.at(engine_.cell(cell).spot.offset));
    handle->impl->clear_data_ptr_access_error_msg_();
  }

  void copy(const Spot& from, const Spot& to, std::int64_t size) override {
    std::memcpy(arena_.at(to.offset), arena_.at(from.offset), static_cast<std::size_t>(size));
  }

  void moved(CellId cell, std::int64_t from, std::int64_t to, std::int64_t size) override {
    std::memmove(arena_.at(to), arena_.at(from), static_cast<std::size_t>(size));
    if (is_listened_) told_.push_back({"move", cell, size, nullptr});
    if (Handle* handle = handle_by_cell(cell)) put(handle, arena_.at(to));
  }

  void take_out(CellId cell) override {
    const auto size = static_cast<std::size_t>(engine_.cell(cell).size);
    c10::DataPtr copied = outside_->allocate(size);
    std::memcpy(copied.mutable_get(), data_of(cell), size);
    taken_out_[cell] = std::move(copied);
  }

  void cell_gone(CellId cell) override {
    if (!taken_out_.empty()) taken_out_.erase(cell);
    Handle* handle = handle_by_cell(cell);
    if (handle == nullptr) return;
    by_cell_[cell] = nullptr;
    if (handle->external == nullptr) return;
    externals_.erase(handle->impl);
    dropped_.push_back(std::move(handle->external));
    give_handle(handle);
  }

  // CPU time of this thread: whatever else the machine does in the meantime is no search.
  double seconds() const override {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void record_gone(RecordId record) override {
    if (static_cast<std::size_t>(record) < recipes_.size() && recipes_[record]) give_recipe(std::move(recipes_[record]));
  }

  // ------------------------------------------------------------------ the end, torch_shim_closing.hpp
  // Hand every tensor over to plain PyTorch: evicted ones are computed again, outside. Returns how many pointers into
  // the arena are left.
  std::int64_t close();

  Arena take_arena() { return std::move(arena_); }

 private:
  static constexpr double kThrashSlack = 1e9;  // modelled nanoseconds
  using Clock = std::chrono::steady_clock;
  static constexpr double kLeastThrashSeconds = 1.0;  // of waiting, as the first step may wait for a while
  static constexpr double kThrashPeriodSeconds = 60.0;  // what was before is forgotten
  static constexpr const char* kEvictedMessage =
      "lowtide has evicted this tensor's bytes to stay within the budget, and this read went past PyTorch's dispatcher, "
      "so they could not be computed again in time. Call lowtide's session.materialize(tensor) before it, or read the "
      "tensor in the thread that entered the budget.";

  Arena arena_;
  Engine engine_;
  double thrash_limit_;
  c10::Allocator* outside_;
  OpTable ops_;
  ShimStats stats_;
  ska::flat_hash_map<std::int64_t, Raw> raw_;                    // by offset
  ska::flat_hash_map<c10::StorageImpl*, Handle*> externals_;
  std::vector<std::unique_ptr<Handle>> spare_handles_;           // to be used again
  std::vector<Handle*> by_cell_;                                 // null: no storage holds that version
  std::vector<std::unique_ptr<Recipe>> recipes_;                 // by record
  std::vector<std::unique_ptr<Recipe>> spare_recipes_;           // to be used again
  std::vector<CellId> scratch_cells_;
  std::unordered_map<CellId, c10::DataPtr> taken_out_;           // copies of cells outside the arena
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> dropped_;
  std::int64_t raw_bytes_ = 0;
  std::int64_t shortage_ = 0;           // raw bytes and the request that failed
  std::int64_t replay_raw_before_ = 0;
  bool is_replaying_ = false;
  RecordId failed_replay_ = kNone;      // the last one that failed, unless another has run since
  Notes notes_;
  std::vector<Told> told_;
  bool is_listened_ = false;
  std::vector<Holding> holdings_;
  const OpInfo* running_ = nullptr;
  Temper temper_ = Temper::kResident;
  std::uint64_t stamp_ = 0;
  std::size_t sweep_clock_ = 0;
  bool is_waiting_ = false;                           // see Waiting
  std::optional<Clock::time_point> wait_began_;       // with the first recomputation
  Clock::time_point period_began_ = Clock::now();     // in which thrashing is looked for
  double period_wait_seconds_ = 0.0;
  bool is_alarming_ = false;

  static double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  void stop_waiting() {
    is_waiting_ = false;
    if (!wait_began_) return;
    const Clock::time_point now = Clock::now();
    const double waited = seconds_between(*std::exchange(wait_began_, std::nullopt), now);
    stats_.wait_seconds += waited;
    period_wait_seconds_ += waited;
    look_for_thrashing(now);
  }

  static bool is_most_of(double period, double waited) { return waited >= std::max(kLeastThrashSeconds, period / 2.0); }

  // Whether an op waits that has to be warned of before it is done waiting: that may be never.
  bool is_warning_due(Clock::time_point now) const {
    if (stats_.has_thrashed || !wait_began_) return false;
    return is_most_of(seconds_between(period_began_, now), period_wait_seconds_ + seconds_between(*wait_began_, now));
  }

  void look_for_thrashing(Clock::time_point now) {
    const double period = seconds_between(period_began_, now);
    if (!stats_.has_thrashed && is_most_of(period, period_wait_seconds_)) is_alarming_ = stats_.has_thrashed = true;
    if (period < kThrashPeriodSeconds) return;
    period_began_ = now;
    period_wait_seconds_ = 0.0;
  }

  std::int64_t block_bytes(std::size_t size) const {
    const std::int64_t unit = engine_.config().alignment;
    return (static_cast<std::int64_t>(size) + unit - 1) / unit * unit;
  }

  // The program's last reference is gone, and with it whoever had its address.
  void release_cell(CellId cell) {
    notes_.release(engine_, cell);
    while (engine_.cell(cell).pins > 0) engine_.unpin(cell);
    engine_.release(cell);
  }

  Handle* handle_by_cell(CellId cell) const {
    return static_cast<std::size_t>(cell) < by_cell_.size() ? by_cell_[cell] : nullptr;
  }

  Handle* take_handle() {
    if (spare_handles_.empty()) spare_handles_.push_back(std::make_unique<Handle>());
    Handle* handle = spare_handles_.back().release();
    spare_handles_.pop_back();
    handle->runtime = this;
    return handle;
  }

  void give_handle(Handle* handle) {
    *handle = Handle{};
    spare_handles_.emplace_back(handle);
  }

  static void point_at(Handle* handle, c10::StorageImpl* storage) {
    handle->impl = storage;
    handle->weak = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(
        static_cast<c10::StorageImpl*>(c10::raw::intrusive_ptr::make_weak(storage)));
  }

  Handle* external_for(c10::StorageImpl* storage) {
    const auto found = externals_.find(storage);
    if (found != externals_.end()) return found->second;
    Handle* handle = take_handle();
    handle->impl = storage;
    handle->external = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
    handle->is_shared = storage->allocator() == nullptr || !storage->resizable();
    externals_.emplace(storage, handle);
    ++stats_.num_externals;
    Spot spot;
    spot.home = Home::kExternal;
    bind_leaf(handle, static_cast<std::int64_t>(storage->nbytes()), spot);
    return handle;
  }

  // A storage that was external has been given memory of ours (it was resized).
  void forget_external(c10::StorageImpl* storage) {
    const auto found = externals_.find(storage);
    if (found != externals_.end()) release_cell(found->second->cell);
  }

  // ------------------------------------------------------------------ closing, torch_shim_closing.hpp
  CellId next_evicted();
  void restore(CellId cell);
  CellId largest_survivor() const;
  void bring_out(CellId cell);
  void abandon(CellId cell);
  std::int64_t let_go(Handle* handle);
};

}  // namespace lowtide::shim
